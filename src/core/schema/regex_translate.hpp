// Translation of the regular expressions of JSON Schema (ECMA-262) for the server's engine. That
// engine matches in linear time wherever a DFA suffices, and it can be interrupted.
#pragma once

#include <string>
#include <string_view>

namespace outbox {

// Returns the pattern in the server's syntax. Throws std::invalid_argument with the reason if it
// has no equivalent there.
std::string to_postgres_regex(std::string_view pattern);

} // namespace outbox
