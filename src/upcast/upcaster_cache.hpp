// The cache of _outbox.upcasters: functions that bring a payload from one version of an event type
// to the next. One cache per backend, valid until the table, a function or a role changes.
#pragma once

#include "pg/cached_expression.hpp"

#include <optional>
#include <span>
#include <string_view>

namespace outbox {

// An upcaster, with the role whose rights it runs with.
struct Upcaster {
    int16 from_version;   // its result has from_version + 1
    const char* function; // for messages: shop.up(jsonb)
    const char* problem;  // why it cannot be called, or nullptr
    Oid runs_as;
    pg::CachedFunctionCall call;
};

// The upcasters of an event type, ordered by version.
struct UpcasterChain {
    std::string_view event_type;
    std::span<Upcaster> upcasters;

    // Returns the upcaster from this version, or nullptr.
    Upcaster* find_from(int version) const;

    // Returns the highest version that upcasters reach from `version`, at most `wanted`.
    int highest_reachable(int version, int wanted) const;
};

// Reads _outbox.upcasters again if an invalidation has arrived. Call inside as_owner().
void refresh_upcaster_cache();

// Returns the upcasters of an event type, or nullptr. Valid until the next
// refresh_upcaster_cache(), which must have been called before.
const UpcasterChain* find_upcaster_chain(std::string_view event_type);

// Returns whether the cache has any upcaster, as of the last refresh_upcaster_cache().
bool has_upcasters();

// Raises an error unless this role can register this function as an upcaster: undefined_function,
// insufficient_privilege or invalid_parameter_value.
void check_upcaster_function(Oid function, Oid registrar);

// Registers syscache callbacks for functions and roles. Called once, by _PG_init().
void register_upcaster_callbacks();

} // namespace outbox
