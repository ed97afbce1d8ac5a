#include "core/latency_histogram.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace outbox::latency {

TEST(Latency, EveryBucketBeginsWhereTheOneBeforeEnds)
{
    for (std::size_t i = 0; i + 1 < bucket_count; ++i) {
        const auto end = static_cast<std::int64_t>(bucket_end(i));
        EXPECT_EQ(bucket_of(end - 1), i) << end;
        EXPECT_EQ(bucket_of(end), i + 1) << end;
    }
}

TEST(Latency, ValuesOutOfRangeAreInTheFirstOrLastBucket)
{
    EXPECT_EQ(bucket_of(-5), 0u);
    EXPECT_EQ(bucket_of(0), 0u);
    EXPECT_EQ(bucket_of(63), 0u);
    EXPECT_EQ(bucket_of(64), 1u);
    EXPECT_EQ(bucket_of(INT64_MAX), bucket_count - 1);
}

TEST(Latency, PercentilesAreAtMostAQuarterTooHigh)
{
    std::vector<std::uint64_t> counts(bucket_count);
    EXPECT_LT(percentile(counts, 0.5), 0);
    for (int i = 1; i <= 1000; ++i)
        ++counts[bucket_of(i * 1000)];
    for (const double part : {0.5, 0.95, 0.99}) {
        EXPECT_GE(percentile(counts, part), part * 1e6);
        EXPECT_LE(percentile(counts, part), part * 1.25e6);
    }
}

} // namespace outbox::latency
