#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace outbox::sink {

// ASCII alone, whatever the locale.
std::string ascii_lower(std::string_view text);

// For values of ce- headers: what is not visible ASCII, and `"` and `%`, as %XX.
std::string percent_encode(std::string_view utf8);
void append_percent_encoded(std::string& out, std::string_view utf8);

std::string to_base64(std::span<const unsigned char> bytes);

// Strict: padded, no white space, nothing that `base64` would have written otherwise.
std::optional<std::vector<unsigned char>> from_base64(std::string_view text);

// Appends the text as a JSON string, in quotes.
void append_json_string(std::string& out, std::string_view utf8);

// 2026-01-02T03:04:05.123456Z. A year that has not four digits gets a sign and six.
std::string format_time(std::int64_t unix_microseconds);

// With leading zeros, so that ids sort as text.
std::string format_sequence(std::int64_t id);

} // namespace outbox::sink
