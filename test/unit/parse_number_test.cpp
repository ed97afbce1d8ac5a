#include "core/parse_number.hpp"

#include <gtest/gtest.h>

using outbox::parse_bigint;

TEST(ParseBigint, AcceptsEveryBigint)
{
    EXPECT_EQ(parse_bigint("0"), 0);
    EXPECT_EQ(parse_bigint("-1"), -1);
    EXPECT_EQ(parse_bigint("9223372036854775807"), INT64_MAX);
    EXPECT_EQ(parse_bigint("-9223372036854775808"), INT64_MIN);
}

TEST(ParseBigint, RefusesEverythingElse)
{
    for (const char* text : {"", " ", "1 ", " 1", "+1", "1x", "x", "1.0", "1e3", "--1", "-",
                             "9223372036854775808", "-9223372036854775809"})
        EXPECT_FALSE(parse_bigint(text)) << '"' << text << '"';
}
