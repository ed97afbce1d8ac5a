// Text of receivers, sanitized for logs and tables.
#include "sink/util/sanitize_text.hpp"

#include "fuzz.hpp"

namespace outbox::fuzz {

bool turns_around(char32_t point)
{
    return point == 0x061C || point == 0x200E || point == 0x200F ||
           (point >= 0x202A && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069);
}

bool is_printable(char32_t point)
{
    return point >= 0x20 && !(point >= 0x7F && point < 0xA0) && point != 0x2028 &&
           point != 0x2029 && !turns_around(point);
}

void try_one(std::string_view input)
{
    const std::string printable = sink::sanitize_text(input);
    const auto points = decode_utf8(printable);
    must(points.has_value(), "the result is UTF-8");
    must(std::ranges::all_of(*points, is_printable), "the result is one line of text");
    must(printable.size() <= input.size(), "the result is not longer than the input");
    must(sink::sanitize_text(printable) == printable, "sanitizing twice changes no more");
    if (const auto given = decode_utf8(input); given && !input.ends_with(' '))
        must(!std::ranges::all_of(*given, is_printable) || printable == input,
             "printable text is unchanged");
}

} // namespace outbox::fuzz
