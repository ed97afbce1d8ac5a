#include "core/error.hpp"

#include <gtest/gtest.h>

TEST(Error, CarriesAllItsParts)
{
    const outbox::Error error("22023", "message", "detail", "hint");
    EXPECT_STREQ(error.sqlstate(), "22023");
    EXPECT_STREQ(error.what(), "message");
    EXPECT_EQ(error.detail(), "detail");
    EXPECT_EQ(error.hint(), "hint");
}

TEST(Error, OwnsItsSqlstate)
{
    char sqlstate[] = "22023";
    const outbox::Error error(sqlstate, "message");
    sqlstate[0] = 'X';
    EXPECT_STREQ(error.sqlstate(), "22023");
}
