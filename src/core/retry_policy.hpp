#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace outbox {

// Delays between the attempts of a failed message. The first retries are immediate; then the delay
// doubles up to a limit. Jitter shortens it at random, so that messages that failed together are
// not all retried at the same time.
struct RetryPolicy {
    int max_attempts;
    int immediate_retries;
    std::int64_t backoff_base; // microseconds
    std::int64_t backoff_max;  // microseconds
    double backoff_jitter;     // greatest fraction by which a delay is shortened, 0 to 1

    friend bool operator==(const RetryPolicy&, const RetryPolicy&) = default;

    // Returns the delay in microseconds before the next attempt after `attempts` failures; 0 for an
    // immediate retry. `chance` is a random number in [0, 1).
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
