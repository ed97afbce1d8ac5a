#include "core/fixed_string.hpp"

#include <gtest/gtest.h>

namespace outbox {

TEST(FixedString, TruncationKeepsWholeUtf8Characters)
{
    EXPECT_STREQ(FixedString<8>("short").text(), "short");
    EXPECT_STREQ(FixedString<4>("abcd").text(), "abc");
    EXPECT_STREQ(FixedString<4>("abäc").text(), "ab");
    EXPECT_STREQ(FixedString<5>("abäc").text(), "abä");
    EXPECT_STREQ(FixedString<3>("€").text(), "");
}

} // namespace outbox
