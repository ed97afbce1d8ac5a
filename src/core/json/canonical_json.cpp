#include "core/json/canonical_json.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace outbox::json {

namespace {

constexpr char hex[] = "0123456789abcdef";

// Returns the character behind the backslash of a two-character escape; 0 if there is none.
char short_escape(unsigned char c) noexcept
{
    switch (c) {
    case '"':
    case '\\':
        return static_cast<char>(c);
    case '\b':
        return 'b';
    case '\f':
        return 'f';
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    default:
        return 0;
    }
}

bool needs_no_escape(unsigned char c) noexcept
{
    return c >= 0x20 && c != '"' && c != '\\';
}

// Returns the rank of a UTF-8 byte in the order of UTF-16. Characters above U+FFFF (lead byte F0
// and higher) are surrogate pairs in UTF-16, which sort below U+E000 to U+FFFF (lead bytes EE and
// EF).
int utf16_rank(unsigned char c) noexcept
{
    if (c >= 0xF0)
        return 0xEE * 2 - 1;
    return c * 2;
}

} // namespace

bool is_before_in_utf16(std::string_view a, std::string_view b) noexcept
{
    const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    if (in_a == a.end() || in_b == b.end())
        return in_a == a.end() && in_b != b.end();
    const auto x = static_cast<unsigned char>(*in_a);
    const auto y = static_cast<unsigned char>(*in_b);
    const int of_x = utf16_rank(x);
    const int of_y = utf16_rank(y);
    return of_x != of_y ? of_x < of_y : x < y;
}

std::size_t quoted_size(std::string_view text) noexcept
{
    std::size_t size = text.size() + 2;
    for (const char c : text)
        if (!needs_no_escape(static_cast<unsigned char>(c)))
            size += short_escape(static_cast<unsigned char>(c)) != 0 ? 1 : 5;
    return size;
}

char* write_string(char* out, std::string_view text) noexcept
{
    *out++ = '"';
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at != end) {
        const char* const special = std::find_if_not(
            at, end, [](char c) { return needs_no_escape(static_cast<unsigned char>(c)); });
        std::memcpy(out, at, static_cast<std::size_t>(special - at));
        out += special - at;
        at = special;
        if (at == end)
            break;
        const auto c = static_cast<unsigned char>(*at++);
        *out++ = '\\';
        if (const char letter = short_escape(c)) {
            *out++ = letter;
            continue;
        }
        *out++ = 'u';
        *out++ = '0';
        *out++ = '0';
        *out++ = hex[c >> 4];
        *out++ = hex[c & 0x0F];
    }
    *out++ = '"';
    return out;
}

// Writes the shortest digits that identify the double, in the layout of ECMAScript's
// Number::toString: plain from 1e-6 to below 1e21, with an exponent otherwise.
char* write_number(char* out, double number) noexcept
{
    if (number == 0) {
        *out++ = '0'; // also for -0
        return out;
    }
    char text[max_number_size];
    const char* const end =
        std::to_chars(text, text + sizeof(text), number, std::chars_format::scientific).ptr;
    const char* at = text;
    if (*at == '-')
        *out++ = *at++;
    char digits[max_number_size];
    int count = 0;
    for (; *at != 'e'; ++at)
        if (*at != '.')
            digits[count++] = *at;
    ++at;
    if (*at == '+')
        ++at;
    int exponent = 0;
    std::from_chars(at, end, exponent);
    const int point = exponent + 1; // digits before the decimal point; negative: zeros after it

    const auto put = [&](const char* from, int size) {
        std::memcpy(out, from, static_cast<std::size_t>(size));
        out += size;
    };
    const auto put_zeros = [&](int size) {
        std::memset(out, '0', static_cast<std::size_t>(size));
        out += size;
    };
    if (point >= count && point <= 21) {
        put(digits, count);
        put_zeros(point - count);
    } else if (point > 0 && point <= 21) {
        put(digits, point);
        *out++ = '.';
        put(digits + point, count - point);
    } else if (point > -6 && point <= 0) {
        put("0.", 2);
        put_zeros(-point);
        put(digits, count);
    } else {
        put(digits, 1);
        if (count > 1) {
            *out++ = '.';
            put(digits + 1, count - 1);
        }
        *out++ = 'e';
        *out++ = point - 1 < 0 ? '-' : '+';
        out = std::to_chars(out, out + 8, std::abs(point - 1)).ptr;
    }
    return out;
}

} // namespace outbox::json
