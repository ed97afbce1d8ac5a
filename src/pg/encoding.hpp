// Text from receivers and brokers, made safe for the database encoding and for the server log.
#pragma once

#include "pg/postgres.hpp"

#include <string_view>

namespace outbox::pg {

// Converts valid UTF-8 to a text value, cut to limits::max_error_bytes at a character boundary. In
// a database that is not UTF8, bytes outside of ASCII become question marks.
Datum error_text_from_utf8(std::string_view text);

// Replaces control characters by spaces in place, and returns `text`: foreign text must stay on one
// line of the server log.
char* replace_control_characters(char* text);

} // namespace outbox::pg
