#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace outbox::sink {

// Lower-cases ASCII letters only; independent of the locale.
std::string ascii_lower(std::string_view text);

// Encodes the value of a ce- header: `"`, `%` and everything but visible ASCII becomes %XX.
// append_percent_encoded() appends the result to `out`.
std::string percent_encode(std::string_view utf8);
void append_percent_encoded(std::string& out, std::string_view utf8);

// Returns padded base64 (RFC 4648, section 4) without line breaks. Raises 54000 above 1 GiB.
std::string to_base64(std::span<const unsigned char> bytes);

// Decodes canonical base64. std::nullopt: any other text, such as one with missing padding, white
// space, or nonzero unused bits, and text above 1 GiB.
std::optional<std::vector<unsigned char>> from_base64(std::string_view text);

// Appends the text as a JSON string, in quotes. Escapes `"`, `\` and control characters, and copies
// everything else without a check.
void append_json_string(std::string& out, std::string_view utf8);

// Returns the time in UTC, such as 2026-01-02T03:04:05.123456Z. Years outside 0 to 9999 have a sign
// and six digits.
std::string format_time(std::int64_t unix_microseconds);

// Returns the id with leading zeros (19 digits), so that ids sort as text. A negative one has a
// minus sign in front.
std::string format_sequence(std::int64_t id);

} // namespace outbox::sink
