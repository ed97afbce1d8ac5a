// Text between the server, in the database's encoding, and plain C++, in UTF-8.
#pragma once

#include "pg/prelude.hpp"

#include <string_view>

namespace outbox::pg {

// Valid UTF-8 as text of the server, cut to what an error may have. What the database's encoding
// does not know becomes a question mark.
Datum text_from_utf8(std::string_view text);

} // namespace outbox::pg
