#pragma once

#include <string>
#include <string_view>

namespace outbox::sink {

// What somebody else said, fit for a log line and a table: on one line, without control characters,
// and valid UTF-8.
std::string sanitize_text(std::string_view text);

} // namespace outbox::sink
