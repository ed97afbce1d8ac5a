#include "core/schema/regex_translate.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace outbox {

TEST(Pattern, IsTranslatedToTheSameMeaningInPostgres)
{
    EXPECT_EQ(to_postgres_regex("^[A-Z]{2}\\d+$"), "^[A-Z]{2}\\d+$");
    EXPECT_EQ(to_postgres_regex("a.b"), "a[^\\n\\r\\u2028\\u2029]b");
    EXPECT_EQ(to_postgres_regex("a\\.b"), "a\\.b");
    EXPECT_EQ(to_postgres_regex("\\bword\\B"), "\\yword\\Y");
    EXPECT_EQ(to_postgres_regex("[\\b.]"), "[\\b.]");
    EXPECT_EQ(to_postgres_regex("[[:alpha:]]"), "[\\[:alpha:]]");
    EXPECT_EQ(to_postgres_regex("[^\\]\\-]"), "[^\\]\\-]");
    EXPECT_EQ(to_postgres_regex("\\x41\\u00e9"), "\\u0041\\u00e9");
    EXPECT_EQ(to_postgres_regex("(?:a)(?=b)(?!c)(?<=d)(?<!e)(f)"),
              "(?:a)(?=b)(?!c)(?<=d)(?<!e)(f)");
    EXPECT_EQ(to_postgres_regex("é/"), "é/");
}

TEST(Pattern, IsRefusedIfPostgresHasNoEquivalent)
{
    for (const char* pattern : {"***=a", "(?i)a", "(?<name>a)", "(a)\\1", "\\p{L}", "\\Aa",
                                "\\u{1F600}", "[]", "[^]", "[a", "a\\", "\\x4", "\\cA", "[\\B]"})
        EXPECT_THROW(to_postgres_regex(pattern), std::invalid_argument) << pattern;
}

} // namespace outbox
