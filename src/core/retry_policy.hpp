#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace outbox {

// When to try again after a failure: at once for the first few times, then after a pause that
// doubles, up to a limit, and is shortened by chance, so that what failed together does not come
// back together.
struct RetryPolicy {
    int max_attempts;
    int immediate_retries;
    std::int64_t backoff_base; // microseconds
    std::int64_t backoff_max;  // microseconds
    double backoff_jitter;     // the part of a pause that chance may take away, 0 to 1

    friend bool operator==(const RetryPolicy&, const RetryPolicy&) = default;

    // In microseconds, after `attempts` have failed. `chance` is in [0, 1).
    std::int64_t backoff_after(int attempts, double chance) const noexcept
    {
        if (attempts <= immediate_retries)
            return 0;
        const double doublings = attempts - immediate_retries - 1;
        const double full = std::min(static_cast<double>(backoff_base) * std::exp2(doublings),
                                     static_cast<double>(backoff_max));
        return static_cast<std::int64_t>(full * (1 - backoff_jitter * chance));
    }
};

} // namespace outbox
