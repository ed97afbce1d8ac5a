// A JSON Schema in one form, whatever draft it was written for: only keywords that constrain, in
// the spelling of draft 7, and every reference to a numbered definition.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace outbox::schema {

using Json = nlohmann::json;

// No schema and no payload is nested more deeply: each level takes some of the stack.
inline constexpr int max_depth = 128;

// In bytes of text.
inline constexpr std::size_t max_size = 1024 * 1024;

// Whether the text matches. Throws if the pattern is none.
using RegexMatch = bool (*)(std::string_view pattern, std::string_view text);

// Keywords of our own, where valijson's are not good enough: its regular expressions overflow the
// stack, and its multipleOf rounds.
inline constexpr const char* pattern_keyword = "outbox-pattern"; // in the server's syntax
inline constexpr const char* multiple_keyword = "outbox-multipleOf";

// A reference to a definition is this and its number.
inline constexpr const char* definitions_prefix = "#/definitions/";

struct NormalizedSchema {
    Json root;
    std::vector<Json> definitions;
};

// Throws outbox::Error if the schema cannot be used.
NormalizedSchema normalize(std::string_view text, RegexMatch match);

} // namespace outbox::schema
