#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace outbox {

// Parses the whole text as a bigint. Returns std::nullopt if it is out of range or contains
// anything but digits after an optional minus sign.
inline std::optional<std::int64_t> parse_bigint(std::string_view text) noexcept
{
    std::int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || stop != end)
        return std::nullopt;
    return value;
}

} // namespace outbox
