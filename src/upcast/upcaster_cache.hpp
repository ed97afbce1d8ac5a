// The upcasters as their table has them: functions that bring a payload from one version of an
// event type to the next. Known per backend, until the table, a function or a role changes.
#pragma once

#include "pg/cached_expression.hpp"

#include <optional>
#include <span>
#include <string_view>

namespace outbox {

struct Upcaster {
    int16 from_version;   // to the version after it
    const char* function; // as people write it: shop.up(jsonb)
    const char* problem;  // why it cannot be called; nullptr: it can
    Oid runs_as;
    pg::CachedFunctionCall call;
};

// What there is for an event type, by version.
struct UpcasterChain {
    std::string_view event_type;
    std::span<Upcaster> upcasters;

    Upcaster* find_from(int version) const;

    // How far it goes from a version, and not beyond `wanted`.
    int highest_reachable(int version, int wanted) const;
};

// Looks whether anything has changed. Call inside pg::as_owner().
void refresh_upcaster_cache();

// As of the last look, and good until the next one. Nothing if the type has none.
const UpcasterChain* find_upcaster_chain(std::string_view event_type);

// Are there any at all?
bool has_upcasters();

// Can this be an upcaster of that role? Raises an error if not.
void check_upcaster_function(Oid function, Oid registrar);

// Registers the callbacks; once, when the library is loaded.
void register_upcaster_callbacks();

} // namespace outbox
