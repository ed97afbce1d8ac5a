#include "sink/util/sanitize_text.hpp"

#include <gtest/gtest.h>

namespace {

using outbox::sink::sanitize_text;
using namespace std::string_literals;

TEST(SanitizeText, TextStaysAsItIs)
{
    for (const char* text : {"", "HTTP 500: try later", "  indented", "Euro € ü 漢字 😀", "\xC2\xA0",
                             "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                             "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "~\x7E"})
        EXPECT_EQ(sanitize_text(text), text);
}

TEST(SanitizeText, IsOneLine)
{
    EXPECT_EQ(sanitize_text("a\nb\r\nc"), "a b  c");
    EXPECT_EQ(sanitize_text("a\xE2\x80\xA8"
                            "b\xE2\x80\xA9"
                            "c"),
              "a b c");
    EXPECT_EQ(sanitize_text("a\xC2\x85"
                            "b"),
              "a b");
    EXPECT_EQ(sanitize_text("\xE2\x80\xA7\xE2\x80\xAF."), "\xE2\x80\xA7\xE2\x80\xAF.");
}

TEST(SanitizeText, HasNoControlCharacters)
{
    EXPECT_EQ(sanitize_text("a\0b\x1B[31mc\td\x7F"
                            "e"s),
              "a b [31mc d e");
    EXPECT_EQ(sanitize_text("\x01\x1F!"), "  !");
    EXPECT_EQ(sanitize_text("a\xC2\x80"
                            "b\xC2\x9F"
                            "c"),
              "a b c");
}

// What makes a reader see the rest of a line in another order.
TEST(SanitizeText, TurnsNothingAround)
{
    EXPECT_EQ(sanitize_text("a\u061C\u200E\u200F\u202A\u202E\u2066\u2069z"), "a       z");
    for (const char* text : {"\u061B", "\u061D", "\u200D", "\u2010", "\u2065", "\u206A", "\u2FFF"})
        EXPECT_EQ(sanitize_text(text), text);
}

TEST(SanitizeText, EveryByteThatIsNoTextIsAQuestionMark)
{
    const std::pair<const char*, const char*> texts[] = {
        // nothing to continue
        {"a\x80z", "a?z"},
        {"\xBF\xBF", "??"},
        // cut
        {"\xC3", "?"},
        {"\xC3z", "?z"},
        {"\xE2\x82", "??"},
        {"\xE2\x82z", "??z"},
        {"\xF0\x9F\x98", "???"},
        {"\xF0\x9F\x98z", "???z"},
        // longer than needed
        {"\xC0\x80", "??"},
        {"\xC1\xBF", "??"},
        {"\xE0\x9F\xBF", "???"},
        {"\xF0\x8F\xBF\xBF", "????"},
        // half of a pair
        {"\xED\xA0\x80", "???"},
        {"\xED\xBF\xBF", "???"},
        // beyond the last character
        {"\xF4\x90\x80\x80", "????"},
        {"\xF5\x80\x80\x80", "????"},
        {"\xFE\xFF", "??"},
        // the next one is whole
        {"\xC3\xC3\xA4", "?\xC3\xA4"},
        {"\xF0\x9F\xC3\xA4", "??\xC3\xA4"},
    };
    for (const auto& [text, expected] : texts)
        EXPECT_EQ(sanitize_text(text), expected);
}

TEST(SanitizeText, HasNoBlanksAtItsEnd)
{
    EXPECT_EQ(sanitize_text("a b \r\n\t"), "a b");
    EXPECT_EQ(sanitize_text("\n\n"), "");
    EXPECT_EQ(sanitize_text("a\0\0"s), "a");
}

} // namespace
