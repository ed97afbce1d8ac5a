// Compares two versions of a JSON Schema for backward compatibility.
#pragma once

#include "core/schema/normalize.hpp"

#include <optional>
#include <string>

namespace outbox::schema {

// Returns the first reason why the change would break producers or consumers of the event;
// std::nullopt if it is compatible. Compatible changes are: a new optional property, additional
// values of an enum, a limit that is wider or removed (pattern, multipleOf, uniqueItems: removed),
// additionalProperties allowed where they were not, and keywords that constrain nothing. Every
// other change breaks.
std::optional<std::string> find_breaking_change(const NormalizedSchema& before,
                                                const NormalizedSchema& after);

} // namespace outbox::schema
