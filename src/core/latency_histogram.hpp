// Histogram of latencies with four buckets per power of two, from 64 microseconds to three days. A
// bucket ends at most 25 % above its start, which bounds the error of a percentile.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace outbox::latency {

inline constexpr int min_power = 6;  // 64 microseconds: the end of the first bucket
inline constexpr int max_power = 38; // 76 hours: the last bucket includes all longer latencies
inline constexpr int buckets_per_power = 4;
inline constexpr std::size_t bucket_count = (max_power - min_power) * buckets_per_power + 1;

// Returns the bucket of a latency; a negative one is in the first bucket.
constexpr std::size_t bucket_of(std::int64_t microseconds) noexcept
{
    if (microseconds < std::int64_t{1} << min_power)
        return 0;
    const auto value = static_cast<std::uint64_t>(microseconds);
    const int power = std::bit_width(value) - 1;
    if (power >= max_power)
        return bucket_count - 1;
    const auto quarter = static_cast<std::size_t>(value >> (power - 2)) % buckets_per_power;
    return 1 + static_cast<std::size_t>(power - min_power) * buckets_per_power + quarter;
}

// Returns the upper bound of a bucket in microseconds.
constexpr double bucket_end(std::size_t bucket) noexcept
{
    if (bucket == 0)
        return std::int64_t{1} << min_power;
    const std::size_t power = min_power + (bucket - 1) / buckets_per_power;
    const auto quarter = static_cast<double>((bucket - 1) % buckets_per_power);
    return static_cast<double>(std::uint64_t{1} << power) * (1 + (quarter + 1) / buckets_per_power);
}

// Number of buckets in the Prometheus histogram: the first one, and one per power of two.
inline constexpr int power_count = max_power - min_power + 1;
// Returns the Prometheus bucket, from 0, that includes a bucket: the four buckets of a power of two
// share one.
constexpr std::size_t power_of_bucket(std::size_t bucket) noexcept
{
    return (bucket + buckets_per_power - 1) / buckets_per_power;
}

// Returns the upper bound in microseconds of the bucket that holds the given fraction (0 to 1) of
// all counts; -1 if all counts are 0.
constexpr double percentile(std::span<const std::uint64_t> counts, double fraction) noexcept
{
    std::uint64_t all = 0;
    for (const std::uint64_t count : counts)
        all += count;
    if (all == 0)
        return -1;
    const double wanted = static_cast<double>(all) * fraction;
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        seen += counts[i];
        if (static_cast<double>(seen) >= wanted)
            return bucket_end(i);
    }
    return bucket_end(counts.size() - 1);
}

} // namespace outbox::latency
