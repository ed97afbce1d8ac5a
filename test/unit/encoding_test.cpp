#include "sink/format/encoding.hpp"

#include "core/error.hpp"

#include <gtest/gtest.h>

namespace {

using namespace outbox::sink;
using namespace std::string_view_literals;
using Bytes = std::vector<unsigned char>;

std::string json(std::string_view text)
{
    std::string out = "x";
    append_json_string(out, text);
    return out.substr(1);
}

TEST(PercentEncode, EncodesSpaceAndUtf8Bytes)
{
    EXPECT_EQ(percent_encode("Euro € 😀"), "Euro%20%E2%82%AC%20%F0%9F%98%80");
}

TEST(PercentEncode, KeepsVisibleAsciiExceptQuoteAndPercent)
{
    std::string visible;
    for (char c = 0x21; c < 0x7F; ++c)
        if (c != '"' && c != '%')
            visible += c;
    EXPECT_EQ(percent_encode(visible), visible);
    EXPECT_EQ(percent_encode("\"%"), "%22%25");
}

TEST(PercentEncode, EncodesEveryControlCharacter)
{
    EXPECT_EQ(percent_encode(""), "");
    EXPECT_EQ(percent_encode("a\r\nb\0c\x7F\t"sv), "a%0D%0Ab%00c%7F%09");
    EXPECT_EQ(percent_encode(std::string(1 << 20, '\xFF')).size(), 3u << 20);
}

TEST(Base64, EncodesTheVectorsOfRfc4648)
{
    const std::pair<std::string_view, const char*> vectors[] = {{"", ""},
                                                                {"f", "Zg=="},
                                                                {"fo", "Zm8="},
                                                                {"foo", "Zm9v"},
                                                                {"foob", "Zm9vYg=="},
                                                                {"fooba", "Zm9vYmE="},
                                                                {"foobar", "Zm9vYmFy"}};
    for (const auto& [plain, encoded] : vectors) {
        const Bytes bytes(plain.begin(), plain.end());
        EXPECT_EQ(to_base64(bytes), encoded);
        EXPECT_EQ(from_base64(encoded), bytes);
    }
}

TEST(Base64, DecodesEveryByteItEncodes)
{
    for (std::size_t size = 0; size < 300; ++size) {
        Bytes bytes(size);
        for (std::size_t i = 0; i < size; ++i)
            bytes[i] = static_cast<unsigned char>(i * 7 + size);
        EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
    }
}

TEST(Base64, RefusesWhatItWouldNotHaveWritten)
{
    for (const std::string_view text :
         {"Zg"sv, "Zg="sv, "Zg==="sv, "===="sv, "Z==="sv, "Zh=="sv, "Zm9="sv, "Zg==Zg=="sv,
          "Zm9v\n"sv, " Zm9"sv, "\nZm9vYmF"sv, "Zm9v    "sv, "Zm-v"sv, "Zm_v"sv, "Zm9\0"sv,
          "Z=9v"sv, "\xC3\xA9Zg"sv, "Zm9v-"sv, "Zm9vYg==    "sv})
        EXPECT_FALSE(from_base64(text)) << '"' << text << '"';
}

TEST(JsonString, EscapesQuotesBackslashesAndControlCharacters)
{
    EXPECT_EQ(json(""), R"("")");
    EXPECT_EQ(json(R"(say "hi" \o/)"), R"("say \"hi\" \\o/")");
    EXPECT_EQ(json("a\n\r\t\0\x1F\x7F"sv), "\"a\\u000a\\u000d\\u0009\\u0000\\u001f\x7F\"");
    EXPECT_EQ(json("Euro € 😀"), "\"Euro € 😀\"");
}

TEST(FormatTime, HasMicrosecondsAndEndsInZ)
{
    EXPECT_EQ(format_time(1'767'323'045'123'456), "2026-01-02T03:04:05.123456Z");
    EXPECT_EQ(format_time(0), "1970-01-01T00:00:00.000000Z");
    EXPECT_EQ(format_time(951'782'400'000'001), "2000-02-29T00:00:00.000001Z");
    EXPECT_EQ(format_time(4'107'542'399'999'999), "2100-02-28T23:59:59.999999Z");
    EXPECT_EQ(format_time(4'107'542'400'000'000), "2100-03-01T00:00:00.000000Z");
}

TEST(FormatTime, FormatsTimesBefore1970)
{
    EXPECT_EQ(format_time(-1), "1969-12-31T23:59:59.999999Z");
    EXPECT_EQ(format_time(-86'400'000'000), "1969-12-31T00:00:00.000000Z");
    EXPECT_EQ(format_time(-62'167'219'200'000'000), "0000-01-01T00:00:00.000000Z");
}

TEST(FormatTime, FarYearsHaveASignAndSixDigits)
{
    EXPECT_EQ(format_time(253'402'300'799'999'999), "9999-12-31T23:59:59.999999Z");
    EXPECT_EQ(format_time(253'402'300'800'000'000), "+010000-01-01T00:00:00.000000Z");
    EXPECT_EQ(format_time(-62'167'219'200'000'001), "-000001-12-31T23:59:59.999999Z");
    EXPECT_EQ(format_time(INT64_MAX), "+294247-01-10T04:00:54.775807Z");
    EXPECT_EQ(format_time(INT64_MIN), "-290308-12-21T19:59:05.224192Z");
}

TEST(FormatSequence, SortsAsText)
{
    EXPECT_EQ(format_sequence(1), "0000000000000000001");
    EXPECT_EQ(format_sequence(INT64_MAX), "9223372036854775807");
    std::string last;
    for (const std::int64_t id : {INT64_C(0), INT64_C(1), INT64_C(9), INT64_C(10), INT64_C(99),
                                  INT64_C(1) << 40, INT64_MAX}) {
        EXPECT_LT(last, format_sequence(id));
        last = format_sequence(id);
    }
    EXPECT_EQ(format_sequence(INT64_MIN), "-9223372036854775808");
}

TEST(Lower, ChangesAsciiLettersOnly)
{
    EXPECT_EQ(ascii_lower("AZaz[@`{09\0É"sv), "azaz[@`{09\0É"sv);
}

} // namespace
