// Text forms of bytes, times and ids. Each is decoded here by simpler means.
#include "sink/format/encoding.hpp"

#include "fuzz.hpp"

#include <cstring>
#include <ctime>

namespace outbox::fuzz {

void check_percent(std::string_view text)
{
    const std::string encoded = sink::percent_encode(text);
    must(is_visible_ascii(encoded) && encoded.find('"') == std::string::npos,
         "a header's value is visible ASCII");
    must(percent_decode(encoded) == text, "a header's value survives a round trip");
}

void check_base64(std::string_view text)
{
    const std::vector<unsigned char> bytes(text.begin(), text.end());
    const std::string encoded = sink::to_base64(bytes);
    must(sink::from_base64(encoded) == bytes, "bytes survive base64");
    if (const auto decoded = sink::from_base64(text))
        must(sink::to_base64(*decoded) == text, "base64 text has one spelling");
}

void check_time(std::int64_t microseconds)
{
    // 30,000 years around 1970: the range that the C library formats correctly.
    constexpr std::int64_t limit = 946'080'000'000'000'000;
    microseconds %= limit;
    const std::string text = sink::format_time(microseconds);
    std::int64_t second = microseconds / 1'000'000;
    std::int64_t rest = microseconds % 1'000'000;
    if (rest < 0) {
        rest += 1'000'000;
        --second;
    }
    std::tm parts{};
    const std::time_t time = second;
    gmtime_r(&time, &parts);
    const long year = parts.tm_year + 1900L;
    const char* sign = year < 0 ? "-" : year > 9999 ? "+" : "";
    char expected[64];
    std::snprintf(expected, sizeof(expected), "%s%0*ld-%02d-%02dT%02d:%02d:%02d.%06ldZ", sign,
                  *sign == '\0' ? 4 : 6, std::labs(year), parts.tm_mon + 1, parts.tm_mday,
                  parts.tm_hour, parts.tm_min, parts.tm_sec, static_cast<long>(rest));
    must(text == expected, "times match the C library's calendar");
}

void check_sequence(std::int64_t a, std::int64_t b)
{
    const std::string text = sink::format_sequence(a);
    must(std::stoll(text) == a, "a sequence number survives a round trip");
    if (a >= 0 && b >= 0)
        must((a < b) == (text < sink::format_sequence(b)), "sequence numbers sort as text");
}

void try_one(std::string_view input)
{
    check_percent(input);
    check_base64(input);
    std::int64_t numbers[2] = {};
    std::memcpy(numbers, input.data(), std::min(input.size(), sizeof(numbers)));
    check_time(numbers[0]);
    check_sequence(numbers[0], numbers[1]);
    const std::string small = sink::ascii_lower(input);
    must(sink::ascii_lower(small) == small && small.size() == input.size(),
         "ascii_lower() changes ASCII letters only");
}

} // namespace outbox::fuzz
