// The relay's part in scheduled events: when they enter the log.
#pragma once

#include "enqueue/schedule.hpp"
#include "sink/interface/sink.hpp"

#include <algorithm>

namespace outbox {

class ScheduledRelease {
public:
    // What others call for: pg::WakeupRequests::reasons.
    void handle_requests(uint32 reasons);
    void wake() { next_due_ = next_refused_ = {}; }

    // Moves those whose time has come, in transactions of its own. Has the log got any?
    bool run_once();
    sink::TimePoint next_run_at() const { return std::min(next_due_, next_refused_); }

private:
    using ReleaseFunction = ReleaseResult (*)(int limit);
    using MillisecondsToNext = int64 (*)();
    ReleaseResult release(ReleaseFunction release_function, MillisecondsToNext milliseconds_to_next,
                          sink::TimePoint& timer);

    sink::TimePoint next_due_{};
    sink::TimePoint next_refused_{};
};

} // namespace outbox
