#include "core/retry_policy.hpp"

#include <gtest/gtest.h>

namespace {

using outbox::RetryPolicy;

constexpr RetryPolicy policy{10, 3, 1'000'000, 60'000'000, 0.5};

TEST(Backoff, FirstRetriesAreImmediate)
{
    for (int attempts = 1; attempts <= 3; ++attempts)
        EXPECT_EQ(policy.backoff_after(attempts, 0), 0);
}

TEST(Backoff, LaterRetriesDoubleUpToTheLimit)
{
    EXPECT_EQ(policy.backoff_after(4, 0), 1'000'000);
    EXPECT_EQ(policy.backoff_after(5, 0), 2'000'000);
    EXPECT_EQ(policy.backoff_after(9, 0), 32'000'000);
    EXPECT_EQ(policy.backoff_after(10, 0), 60'000'000);
    EXPECT_EQ(policy.backoff_after(1'000'000, 0), 60'000'000);
}

TEST(Backoff, JitterOnlyShortens)
{
    EXPECT_EQ(policy.backoff_after(5, 0.5), 1'500'000);
    EXPECT_GT(policy.backoff_after(5, 0.999999), 999'999);
}

} // namespace
