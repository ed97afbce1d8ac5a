// Shared by all targets. A target is one file that defines try_one(), which checks promises for one
// input.
#pragma once

#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <regex.h>
#include <string>
#include <string_view>
#include <vector>

namespace outbox::fuzz {

void try_one(std::string_view input);

// abort() makes the fuzzer report and keep the input.
inline void must(bool holds, const char* promise)
{
    if (holds)
        return;
    std::fprintf(stderr, "broken: %s\n", promise);
    std::abort();
}

// Splits the input into `count` parts; the last one has the whole rest. Missing parts are empty.
template <std::size_t count>
std::array<std::string_view, count> split(std::string_view input, char separator)
{
    std::array<std::string_view, count> parts;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t end = i + 1 == count ? input.size() : input.find(separator);
        parts[i] = input.substr(0, end);
        input.remove_prefix(std::min(parts[i].size() + 1, input.size()));
    }
    return parts;
}

// The outbox::Error that `body` throws, if any. Any other exception ends the target as a finding.
template <typename Body>
std::optional<Error> error_of(Body&& body)
{
    try {
        body();
        return std::nullopt;
    } catch (const Error& error) {
        return error;
    }
}

inline bool is_one_of(std::string_view text, std::initializer_list<std::string_view> list)
{
    return std::ranges::find(list, text) != list.end();
}

// True if the whole text matches a POSIX extended regular expression. The C library compiles one
// quickly.
inline bool matches(std::string_view text, const char* expression)
{
    if (text.find('\0') != std::string_view::npos)
        return false; // no expression here matches a NUL
    regex_t compiled;
    must(regcomp(&compiled, expression, REG_EXTENDED) == 0, "the expression is valid");
    regmatch_t match = {};
    const bool found = regexec(&compiled, std::string(text).c_str(), 1, &match, 0) == 0;
    regfree(&compiled);
    return found && match.rm_so == 0 && match.rm_eo == static_cast<regoff_t>(text.size());
}

// U+0021 to U+007E
inline bool is_visible_ascii(std::string_view text)
{
    return std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7F; });
}

// Code points; std::nullopt if the text is not UTF-8. Simple and slow, from the value of the bytes.
inline std::optional<std::u32string> decode_utf8(std::string_view text)
{
    std::u32string out;
    while (!text.empty()) {
        const auto first = static_cast<unsigned char>(text[0]);
        const std::size_t length = first < 0x80           ? 1
                                   : (first >> 5) == 0x06 ? 2
                                   : (first >> 4) == 0x0E ? 3
                                   : (first >> 3) == 0x1E ? 4
                                                          : 0;
        if (length == 0 || length > text.size())
            return std::nullopt;
        char32_t point = length == 1 ? first : first & (0x7Fu >> length);
        for (std::size_t i = 1; i < length; ++i) {
            const auto next = static_cast<unsigned char>(text[i]);
            if ((next & 0xC0) != 0x80)
                return std::nullopt;
            point = point << 6 | (next & 0x3F);
        }
        constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
        if (point < least[length] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF))
            return std::nullopt;
        out += point;
        text.remove_prefix(length);
    }
    return out;
}

// Text as the server stores it: UTF-8 without NUL.
inline std::string as_text(std::string_view bytes)
{
    std::string out;
    while (!bytes.empty()) {
        std::size_t length = std::min<std::size_t>(4, bytes.size());
        while (length > 1 && decode_utf8(bytes.substr(0, length)).value_or(U"").size() != 1)
            --length;
        const std::string_view character = bytes.substr(0, length);
        const bool fits = character[0] != '\0' && decode_utf8(character).has_value();
        out += fits ? character : "?";
        bytes.remove_prefix(length);
    }
    return out;
}

// Decodes the value of a ce- header.
inline std::string percent_decode(std::string_view text)
{
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            out += text[i];
            continue;
        }
        must(i + 2 < text.size(), "two digits follow every percent sign");
        const std::string digits(text.substr(i + 1, 2));
        must(digits.find_first_not_of("0123456789ABCDEF") == std::string::npos,
             "hexadecimal digits are in upper case");
        out += static_cast<char>(std::stoi(digits, nullptr, 16));
        i += 2;
    }
    return out;
}

} // namespace outbox::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    outbox::fuzz::try_one({reinterpret_cast<const char*>(data), size});
    return 0;
}
