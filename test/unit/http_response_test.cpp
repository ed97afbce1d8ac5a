#include "sink/http/http_response.hpp"

#include <gtest/gtest.h>

#include <string>

namespace {

using namespace outbox::sink;
using std::chrono::seconds;

// Sun, 06 Nov 1994 08:49:37 GMT
constexpr std::int64_t then = 784'111'777;

TEST(ClassifyHttpStatus, SuccessIsDelivered)
{
    for (const long status : {200L, 201L, 202L, 204L, 299L})
        EXPECT_EQ(classify_http_status(status), DeliveryStatus::delivered) << status;
}

TEST(ClassifyHttpStatus, OtherErrorsAreUnavailable)
{
    for (const long status : {408L, 425L, 429L, 500L, 502L, 503L, 504L, 599L, 300L, 301L, 302L,
                              307L, 308L, 399L, 401L, 403L, 404L, 405L, 407L})
        EXPECT_EQ(classify_http_status(status), DeliveryStatus::unavailable) << status;
}

TEST(ClassifyHttpStatus, AnInvalidStatusIsUnavailable)
{
    for (const long status : {-1L, 0L, 100L, 199L, 600L, 999L})
        EXPECT_EQ(classify_http_status(status), DeliveryStatus::unavailable) << status;
}

TEST(ClassifyHttpStatus, OtherClientErrorsAreRejected)
{
    for (const long status :
         {400L, 402L, 406L, 409L, 411L, 413L, 415L, 418L, 422L, 424L, 426L, 499L})
        EXPECT_EQ(classify_http_status(status), DeliveryStatus::rejected) << status;
}

TEST(ClassifyHttpStatus, GoneIsEndpointGone)
{
    EXPECT_EQ(classify_http_status(410), DeliveryStatus::endpoint_gone);
}

TEST(StatusLine, HasAThreeDigitStatus)
{
    EXPECT_EQ(parse_status_line("HTTP/1.1 200 OK\r\n"), 200);
    EXPECT_EQ(parse_status_line("HTTP/1.0  404\r\n"), 404);
    EXPECT_EQ(parse_status_line("HTTP/2 503 \r\n"), 503);
    for (const char* line :
         {"", "HTTP/", "HTTP/1.1", "HTTP/1.1 ", "HTTP/1.1 20", "HTTP/1.1 2x0 OK", "HTTP/ 200 OK",
          "HTTP/*1.1 500 X", "http/1.1 500 X", "HTTP 200 OK", "HTTP/1.1\t200 OK", "HTTP/.1 200 OK"})
        EXPECT_EQ(parse_status_line(line), std::nullopt) << line;
}

TEST(RetryAfter, AcceptsSeconds)
{
    EXPECT_EQ(parse_retry_after("0", then), seconds{0});
    EXPECT_EQ(parse_retry_after("120", then), seconds{120});
    EXPECT_EQ(parse_retry_after(" \t 007 ", then), seconds{7});
}

TEST(RetryAfter, IsLimitedToZeroToOneHour)
{
    EXPECT_EQ(parse_retry_after("3600", then), seconds{3600});
    EXPECT_EQ(parse_retry_after("3601", then), seconds{3600});
    EXPECT_EQ(parse_retry_after(std::string(10'000, '9'), then), seconds{3600});
    EXPECT_EQ(parse_retry_after("-5", then), seconds{0});
    EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", then + 1), seconds{0});
    EXPECT_EQ(parse_retry_after("Fri, 31 Dec 9999 23:59:59 GMT", then), seconds{3600});
    EXPECT_EQ(parse_retry_after("Sat, 01 Jan 0000 00:00:00 GMT", then), seconds{0});
}

TEST(RetryAfter, AcceptsTheThreeFormsOfAnHttpDate)
{
    for (const char* date : {"Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT",
                             "Sun Nov  6 08:49:37 1994"})
        EXPECT_EQ(parse_retry_after(date, then - 90), seconds{90}) << date;
    EXPECT_EQ(parse_retry_after("Wed Nov 16 08:49:37 1994", then + 10 * 86'400 - 5), seconds{5});
}

TEST(RetryAfter, ATwoDigitYearIsAtMost50YearsAhead)
{
    constexpr std::int64_t year_2026 = 1'767'323'045;
    // '76 means 2076, which is 50 years ahead. '77 would be 51 years ahead and therefore means
    // 1977.
    EXPECT_EQ(parse_retry_after("Thursday, 02-Jan-76 00:00:00 GMT", year_2026), seconds{3600});
    EXPECT_EQ(parse_retry_after("Sunday, 02-Jan-77 00:00:00 GMT", year_2026), seconds{0});
    // At the end of a century, '00 is in the next one.
    EXPECT_EQ(parse_retry_after("Saturday, 01-Jan-00 00:00:00 GMT", 946'684'799), seconds{1});
}

TEST(RetryAfter, DatesFollowTheGregorianCalendar)
{
    EXPECT_EQ(parse_retry_after("Tue, 29 Feb 2000 00:00:00 GMT", 951'782'399), seconds{1});
    EXPECT_EQ(parse_retry_after("Sat, 31 Dec 2016 23:59:60 GMT", 1'483'228'799), seconds{1});
    for (const char* date : {"Wed, 29 Feb 2023 00:00:00 GMT", "Sun, 00 Nov 1994 08:49:37 GMT",
                             "Sun, 31 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 24:00:00 GMT",
                             "Sun, 06 Nov 1994 08:60:00 GMT", "Sun, 06 Nov 1994 08:49:61 GMT"})
        EXPECT_FALSE(parse_retry_after(date, then)) << date;
}

TEST(RetryAfter, InvalidValuesAreIgnored)
{
    for (const std::string_view text : {"",
                                        " ",
                                        "-",
                                        "+5",
                                        "5s",
                                        "1.5",
                                        "1e3",
                                        "0x10",
                                        "soon",
                                        "5 6",
                                        "--5",
                                        "Sun, 06 Nov 1994 08:49:37",
                                        "Sun, 06 Nov 1994 08:49:37 UTC",
                                        "Sun, 06 Nov 1994 08:49:37 GMT+1",
                                        "Sun, 6 Nov 1994 08:49:37 GMT",
                                        "Sun, 06 Now 1994 08:49:37 GMT",
                                        "Xyz, 06 Nov 1994 08:49:37 GMT",
                                        "sun, 06 nov 1994 08:49:37 gmt",
                                        "Sun, 06-Nov-94 08:49:37 GMT",
                                        "Sun Nov 6 08:49:37 1994",
                                        "Sun Nov  6 08:49:37 94",
                                        "Sun, 06 Nov 94 08:49:37 GMT",
                                        "1994-11-06T08:49:37Z",
                                        "Sun, 06 Nov 1994 08:49",
                                        "Sun, "})
        EXPECT_FALSE(parse_retry_after(text, then)) << text;
    EXPECT_FALSE(parse_retry_after(std::string_view("5\0", 2), then));
}

} // namespace
