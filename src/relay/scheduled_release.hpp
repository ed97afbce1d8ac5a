// The relay's timers for scheduled events: moves due rows of _outbox.scheduled into the log.
#pragma once

#include "enqueue/schedule.hpp"
#include "sink/interface/sink.hpp"

#include <algorithm>

namespace outbox {

// Two timers: for due events, and for due events that the log has rejected before.
class ScheduledRelease {
public:
    // Makes the timers due that the reasons of ipc::take_wakeup_requests() name.
    void handle_requests(uint32 reasons);
    // Makes both timers due.
    void wake() { next_due_ = next_refused_ = {}; }

    // Runs a transaction for each timer that is due; it moves up to 1000 events. Returns true if
    // the log has new events; logs an error and returns false for it.
    bool run_once();
    // Returns when run_once() must be called again.
    sink::TimePoint next_run_at() const { return std::min(next_due_, next_refused_); }

private:
    using ReleaseFunction = ReleaseResult (*)(int limit);
    using MillisecondsToNext = int64 (*)();
    // Moves events in one transaction and sets the timer. After an error: a log line and no result.
    ReleaseResult release(ReleaseFunction release_function, MillisecondsToNext milliseconds_to_next,
                          sink::TimePoint& timer);

    sink::TimePoint next_due_{};
    sink::TimePoint next_refused_{}; // events that the log has rejected before
};

} // namespace outbox
