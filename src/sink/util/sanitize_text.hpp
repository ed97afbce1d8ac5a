#pragma once

#include <string>
#include <string_view>

namespace outbox::sink {

// Makes text of a receiver safe for the server log and for tables: control characters, line breaks
// and bidirectional controls become blanks, bytes that are not UTF-8 become '?'. Blanks at the end
// are removed.
std::string sanitize_text(std::string_view text);

} // namespace outbox::sink
