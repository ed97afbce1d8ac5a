#include "core/json/canonical_json.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace outbox::json {

namespace {

std::string number(double value)
{
    char text[max_number_size];
    return {text, write_number(text, value)};
}

std::string string(std::string_view value)
{
    std::string text(quoted_size(value), '#');
    const char* end = write_string(text.data(), value);
    EXPECT_EQ(end, text.data() + text.size());
    return text;
}

} // namespace

TEST(CanonicalJson, NumbersMatchTheExamplesOfRfc8785)
{
    EXPECT_EQ(number(333333333.33333329), "333333333.3333333");
    EXPECT_EQ(number(1E30), "1e+30");
    EXPECT_EQ(number(4.50), "4.5");
    EXPECT_EQ(number(2e-3), "0.002");
    EXPECT_EQ(number(0.000000000000000000000000001), "1e-27");
    EXPECT_EQ(number(-0.0), "0");
    // RFC 8785, appendix B
    EXPECT_EQ(number(5e-324), "5e-324");
    EXPECT_EQ(number(-5e-324), "-5e-324");
    EXPECT_EQ(number(1.7976931348623157e308), "1.7976931348623157e+308");
    EXPECT_EQ(number(-1.7976931348623157e308), "-1.7976931348623157e+308");
    EXPECT_EQ(number(9007199254740992), "9007199254740992");
    EXPECT_EQ(number(-9007199254740992), "-9007199254740992");
    EXPECT_EQ(number(295147905179352830000.0), "295147905179352830000");
    EXPECT_EQ(number(9.999999999999997e22), "9.999999999999997e+22");
    EXPECT_EQ(number(1e23), "1e+23");
    EXPECT_EQ(number(1.0000000000000001e23), "1.0000000000000001e+23");
    EXPECT_EQ(number(999999999999999700000.0), "999999999999999700000");
    EXPECT_EQ(number(999999999999999900000.0), "999999999999999900000");
    EXPECT_EQ(number(1e21), "1e+21");
    EXPECT_EQ(number(9.999999999999997e-7), "9.999999999999997e-7");
    EXPECT_EQ(number(0.000001), "0.000001");
    EXPECT_EQ(number(333333333.3333332), "333333333.3333332");
    EXPECT_EQ(number(-0.0000033333333333333333), "-0.0000033333333333333333");
    EXPECT_EQ(number(1424953923781206.2), "1424953923781206.2");
}

TEST(CanonicalJson, NumbersFitIntoMaxNumberSize)
{
    for (const double value :
         {-1.7976931348623157e308, -2.2250738585072014e-308, -0.0000012345678901234567,
          -123456789012345680000.0, -1.2345678901234567e-7})
        EXPECT_LE(number(value).size(), max_number_size) << value;
}

TEST(CanonicalJson, NumbersSurviveARoundTrip)
{
    for (double value : {0.1, 1.0 / 3, 2.5e-8, 123456.789, 1e15, 123456789012345.67, 1e20, 3e-7})
        for (int i = 0; i < 40; ++i, value = std::nextafter(value, 1e300))
            EXPECT_EQ(std::stod(number(value)), value) << number(value);
}

TEST(CanonicalJson, StringsAreEscapedOnlyWhereJsonRequiresIt)
{
    EXPECT_EQ(string(""), R"("")");
    EXPECT_EQ(string("a/b\x7f"), "\"a/b\x7f\"");
    EXPECT_EQ(string("\"\\\b\f\n\r\t"), R"("\"\\\b\f\n\r\t")");
    EXPECT_EQ(string(std::string_view("\x00\x0f\x1f", 3)), R"("\u0000\u000f\u001f")");
    EXPECT_EQ(string("\u20ac$\u00f6\U0001F600"), "\"\u20ac$\u00f6\U0001F600\"");
}

TEST(CanonicalJson, KeysAreSortedByUtf16CodeUnits)
{
    std::vector<std::string> keys = {"\u20ac", "\r",     "\ufb33", "1",  "\U0001F600",
                                     "\u0080", "\u00f6", "10",     "1a", ""};
    std::ranges::sort(keys, is_before_in_utf16);
    EXPECT_EQ(keys, (std::vector<std::string>{"", "\r", "1", "10", "1a", "\u0080", "\u00f6",
                                              "\u20ac", "\U0001F600", "\ufb33"}));
    EXPECT_FALSE(is_before_in_utf16("a", "a"));
    EXPECT_TRUE(is_before_in_utf16("\U0001F600", "\U0001F601"));
    EXPECT_TRUE(is_before_in_utf16("\U0001F600", "\U00100000"));
    EXPECT_TRUE(is_before_in_utf16("\ud7ff", "\U00010000"));
    EXPECT_TRUE(is_before_in_utf16("\U0010FFFF", "\ue000"));
}

} // namespace outbox::json
