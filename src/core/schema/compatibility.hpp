// What a new schema means for those who know the old one.
#pragma once

#include "core/schema/normalize.hpp"

#include <optional>
#include <string>

namespace outbox::schema {

// The first reason why the change would break somebody; nothing if it is compatible. Compatible are
// a new property that is not required, additional values of an enum, limits that are wider or gone
// (pattern, multipleOf and uniqueItems: gone), an object that is open where it was closed, and
// whatever constrains nothing. All else breaks.
std::optional<std::string> find_breaking_change(const NormalizedSchema& before,
                                                const NormalizedSchema& after);

} // namespace outbox::schema
