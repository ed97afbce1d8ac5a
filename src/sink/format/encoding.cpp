#include "sink/format/encoding.hpp"

#include "core/error.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace outbox::sink {

namespace {

constexpr char upper_hex[] = "0123456789ABCDEF";
constexpr char lower_hex[] = "0123456789abcdef";

// Limit of the text, because OpenSSL counts in int. Keys, digests and secrets are far smaller.
constexpr std::size_t max_base64_bytes = 1 << 30;

// Appends the number with leading zeros up to `width` digits; a longer number is not cut.
void append_padded(std::string& out, std::uint64_t number, std::size_t width)
{
    char digits[20];
    const char* const end = std::to_chars(std::begin(digits), std::end(digits), number).ptr;
    const auto length = static_cast<std::size_t>(end - digits);
    out.append(width - std::min(width, length), '0').append(digits, length);
}

struct Date {
    std::int64_t year;
    unsigned month;
    unsigned day;
};

// Converts days to a Gregorian date. std::chrono::year ends at 32767, the server's timestamps go
// further. The algorithm is civil_from_days of Howard Hinnant's "chrono-compatible low-level date
// algorithms": eras of 400 years that begin in March, so that the leap day comes last.
Date date_of(std::int64_t days_since_1970)
{
    const std::int64_t days = days_since_1970 + 719'468;
    const std::int64_t era = (days >= 0 ? days : days - 146'096) / 146'097;
    const auto day_of_era = static_cast<unsigned>(days - era * 146'097);
    const unsigned year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36'524 - day_of_era / 146'096) / 365;
    const unsigned day_of_year =
        day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const unsigned month_from_march = (5 * day_of_year + 2) / 153;
    const unsigned day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    const unsigned month = month_from_march < 10 ? month_from_march + 3 : month_from_march - 9;
    const std::int64_t year = static_cast<std::int64_t>(year_of_era) + era * 400;
    return {month <= 2 ? year + 1 : year, month, day};
}

// Appends four digits; for a year outside 0 to 9999 a sign and at least six digits.
void append_year(std::string& out, std::int64_t year)
{
    if (year >= 0 && year <= 9999)
        append_padded(out, static_cast<std::uint64_t>(year), 4);
    else
        append_padded(out += year < 0 ? '-' : '+', static_cast<std::uint64_t>(std::llabs(year)), 6);
}

} // namespace

std::string ascii_lower(std::string_view text)
{
    std::string out(text);
    for (char& c : out)
        if (c >= 'A' && c <= 'Z')
            c = static_cast<char>(c - 'A' + 'a');
    return out;
}

void append_percent_encoded(std::string& out, std::string_view utf8)
{
    const auto stays = [](char c) { return c > 0x20 && c < 0x7F && c != '"' && c != '%'; };
    for (auto rest = utf8.begin(); rest != utf8.end();) {
        const auto next = std::find_if_not(rest, utf8.end(), stays);
        out.append(rest, next);
        rest = next;
        if (rest == utf8.end())
            return;
        const auto byte = static_cast<unsigned char>(*rest++);
        out += '%';
        out += upper_hex[byte >> 4];
        out += upper_hex[byte & 0x0F];
    }
}

std::string percent_encode(std::string_view utf8)
{
    std::string out;
    out.reserve(utf8.size());
    append_percent_encoded(out, utf8);
    return out;
}

std::string to_base64(std::span<const unsigned char> bytes)
{
    if (bytes.size() > max_base64_bytes)
        throw Error("54000", "cannot encode more than 1 GiB in base64");
    std::string out((bytes.size() + 2) / 3 * 4, '\0');
    EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), bytes.data(),
                    static_cast<int>(bytes.size()));
    return out;
}

std::optional<std::vector<unsigned char>> from_base64(std::string_view text)
{
    if (text.size() % 4 != 0 || text.size() > max_base64_bytes)
        return std::nullopt;
    if (text.empty())
        return std::vector<unsigned char>{};
    std::vector<unsigned char> bytes(text.size() / 4 * 3);
    if (EVP_DecodeBlock(bytes.data(), reinterpret_cast<const unsigned char*>(text.data()),
                        static_cast<int>(text.size())) != static_cast<int>(bytes.size()))
        return std::nullopt;
    const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
    bytes.resize(bytes.size() - padding);
    // OpenSSL accepts surrounding blanks, padding anywhere and nonzero unused bits.
    if (to_base64(bytes) != text)
        return std::nullopt;
    return bytes;
}

void append_json_string(std::string& out, std::string_view utf8)
{
    out += '"';
    for (const char c : utf8) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (byte < 0x20) {
            out += "\\u00";
            out += lower_hex[byte >> 4];
            out += lower_hex[byte & 0x0F];
        } else {
            out += c;
        }
    }
    out += '"';
}

std::string format_time(std::int64_t unix_microseconds)
{
    constexpr std::int64_t day_length = 86'400'000'000;
    std::int64_t days = unix_microseconds / day_length;
    std::int64_t rest = unix_microseconds % day_length;
    if (rest < 0) {
        rest += day_length;
        --days;
    }
    const Date date = date_of(days);
    const auto time = static_cast<std::uint64_t>(rest);
    std::string out;
    out.reserve(32);
    append_year(out, date.year);
    append_padded(out += '-', date.month, 2);
    append_padded(out += '-', date.day, 2);
    append_padded(out += 'T', time / 3'600'000'000, 2);
    append_padded(out += ':', time / 60'000'000 % 60, 2);
    append_padded(out += ':', time / 1'000'000 % 60, 2);
    append_padded(out += '.', time % 1'000'000, 6);
    return out += 'Z';
}

std::string format_sequence(std::int64_t id)
{
    constexpr std::size_t digits_of_a_bigint = 19;
    std::string out;
    if (id >= 0)
        append_padded(out, static_cast<std::uint64_t>(id), digits_of_a_bigint);
    else
        append_padded(out += '-', -static_cast<std::uint64_t>(id), digits_of_a_bigint);
    return out;
}

} // namespace outbox::sink
