// Parts of canonical JSON (RFC 8785): strings, numbers and the order of keys. The caller walks the
// values (idempotency/request_hash.cpp reads them from jsonb) and allocates the buffers.
#pragma once

#include <cstddef>
#include <string_view>

namespace outbox::json {

// Returns true if `a` sorts before `b` by UTF-16 code units, the order of keys in RFC 8785. Both
// must be valid UTF-8.
bool is_before_in_utf16(std::string_view a, std::string_view b) noexcept;

// Returns the number of bytes that write_string() writes, quotes included.
std::size_t quoted_size(std::string_view text) noexcept;

// Writes the string with quotes and escapes to `out`, which needs room for quoted_size() bytes.
// Returns the end of the written bytes; writes no terminating zero.
char* write_string(char* out, std::string_view text) noexcept;

// Upper bound of the bytes that write_number() writes.
inline constexpr std::size_t max_number_size = 32;

// Writes a finite number as ECMAScript does to `out`, which needs room for max_number_size bytes.
// Returns the end of the written bytes; writes no terminating zero.
char* write_number(char* out, double number) noexcept;

} // namespace outbox::json
