#include "core/fixed_string.hpp"

#include <gtest/gtest.h>

namespace outbox {

TEST(Note, CutsNoCharacterInTwo)
{
    EXPECT_STREQ(Note<8>("short").text(), "short");
    EXPECT_STREQ(Note<4>("abcd").text(), "abc");
    EXPECT_STREQ(Note<4>("abäc").text(), "ab");
    EXPECT_STREQ(Note<5>("abäc").text(), "abä");
    EXPECT_STREQ(Note<3>("€").text(), "");
}

} // namespace outbox
