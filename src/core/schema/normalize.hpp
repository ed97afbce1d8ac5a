// Normalization of JSON Schemas of draft 7 and 2020-12 to one form: only keywords that constrain,
// in the spelling of draft 7, and every $ref to a numbered definition. It rejects the schemas that
// valijson cannot handle: references to other documents, circular references, deep nesting.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace outbox::schema {

using Json = nlohmann::json;

// Levels of nesting in a schema and in a payload. Each level takes stack in recursive functions.
inline constexpr int max_depth = 128;

// Bytes in the text of a schema.
inline constexpr std::size_t max_size = 1024 * 1024;

// Returns true if the text matches the pattern, which is in the server's syntax. Throws if the
// pattern is invalid.
using RegexMatch = bool (*)(std::string_view pattern, std::string_view text);

// Custom keywords that replace two of valijson's: its pattern uses std::regex, which can overflow
// the stack, and its multipleOf rounds.
inline constexpr const char* pattern_keyword = "outbox-pattern"; // in the server's syntax
inline constexpr const char* multiple_keyword = "outbox-multipleOf";

// Prefix of a normalized reference; the number of the definition follows.
inline constexpr const char* definitions_prefix = "#/definitions/";

// A schema and the definitions that its references name by number.
struct NormalizedSchema {
    Json root;
    std::vector<Json> definitions;
};

// Parses and normalizes the text of a schema. `match` checks its patterns. Throws outbox::Error if
// the schema is invalid or not supported.
NormalizedSchema normalize(std::string_view text, RegexMatch match);

} // namespace outbox::schema
