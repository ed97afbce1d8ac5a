// Regular expressions as JSON Schema has them (ECMA-262), for the server's engine, which needs no
// more time than the text is long, wherever it can, and can be interrupted.
#pragma once

#include <string>
#include <string_view>

namespace outbox {

// The same in the server's syntax. Throws std::invalid_argument with the reason if there is none.
std::string to_postgres_regex(std::string_view pattern);

} // namespace outbox
