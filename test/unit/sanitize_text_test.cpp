#include "sink/util/sanitize_text.hpp"

#include <gtest/gtest.h>

namespace {

using outbox::sink::sanitize_text;
using namespace std::string_literals;

TEST(SanitizeText, ValidTextIsUnchanged)
{
    for (const char* text : {"", "HTTP 500: try later", "  indented", "Euro € ü 漢字 😀", "\xC2\xA0",
                             "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                             "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "~\x7E"})
        EXPECT_EQ(sanitize_text(text), text);
}

TEST(SanitizeText, TheResultIsOneLine)
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

TEST(SanitizeText, ControlCharactersBecomeSpaces)
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

// Bidirectional controls: they display the rest of a line in another order.
TEST(SanitizeText, BidirectionalControlsBecomeSpaces)
{
    EXPECT_EQ(sanitize_text("a\u061C\u200E\u200F\u202A\u202E\u2066\u2069z"), "a       z");
    for (const char* text : {"\u061B", "\u061D", "\u200D", "\u2010", "\u2065", "\u206A", "\u2FFF"})
        EXPECT_EQ(sanitize_text(text), text);
}

TEST(SanitizeText, EveryInvalidByteBecomesAQuestionMark)
{
    const std::pair<const char*, const char*> texts[] = {
        // continuation bytes without a lead byte
        {"a\x80z", "a?z"},
        {"\xBF\xBF", "??"},
        // truncated sequences
        {"\xC3", "?"},
        {"\xC3z", "?z"},
        {"\xE2\x82", "??"},
        {"\xE2\x82z", "??z"},
        {"\xF0\x9F\x98", "???"},
        {"\xF0\x9F\x98z", "???z"},
        // overlong encodings
        {"\xC0\x80", "??"},
        {"\xC1\xBF", "??"},
        {"\xE0\x9F\xBF", "???"},
        {"\xF0\x8F\xBF\xBF", "????"},
        // surrogates
        {"\xED\xA0\x80", "???"},
        {"\xED\xBF\xBF", "???"},
        // beyond U+10FFFF
        {"\xF4\x90\x80\x80", "????"},
        {"\xF5\x80\x80\x80", "????"},
        {"\xFE\xFF", "??"},
        // the character after a truncated sequence is kept
        {"\xC3\xC3\xA4", "?\xC3\xA4"},
        {"\xF0\x9F\xC3\xA4", "??\xC3\xA4"},
    };
    for (const auto& [text, expected] : texts)
        EXPECT_EQ(sanitize_text(text), expected);
}

TEST(SanitizeText, TrailingSpacesAreRemoved)
{
    EXPECT_EQ(sanitize_text("a b \r\n\t"), "a b");
    EXPECT_EQ(sanitize_text("\n\n"), "");
    EXPECT_EQ(sanitize_text("a\0\0"s), "a");
}

} // namespace
