// The pieces of canonical JSON, RFC 8785: strings, numbers, and the order of keys. What puts them
// together knows where the values come from.
#pragma once

#include <cstddef>
#include <string_view>

namespace outbox::json {

// In the order of UTF-16 code units. Both are valid UTF-8.
bool is_before_in_utf16(std::string_view a, std::string_view b) noexcept;

// How many bytes the string takes, with its quotes.
std::size_t quoted_size(std::string_view text) noexcept;

// Writes it, and returns where it ends.
char* write_string(char* out, std::string_view text) noexcept;

// What a number takes at most.
inline constexpr std::size_t max_number_size = 32;

// A finite number as ECMAScript writes it. Returns where it ends.
char* write_number(char* out, double number) noexcept;

} // namespace outbox::json
