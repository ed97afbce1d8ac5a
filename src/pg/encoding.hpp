// Text between the server, in the database's encoding, and plain C++, in UTF-8; and for its log.
#pragma once

#include "pg/postgres.hpp"

#include <string_view>

namespace outbox::pg {

// Valid UTF-8 as text of the server, cut to what an error may have. What the database's encoding
// does not know becomes a question mark.
Datum error_text_from_utf8(std::string_view text);

// Whatever somebody has said, it stays one line of the server's log. Changes the text itself.
char* replace_control_characters(char* text);

} // namespace outbox::pg
