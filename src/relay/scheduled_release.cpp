#include "relay/scheduled_release.hpp"

#include "extension/guc.hpp"
#include "extension/worker_transaction.hpp"
#include "ipc/worker_registry.hpp"
#include "pg/server_log.hpp"

namespace outbox {

using sink::Clock;
using std::chrono::milliseconds;

namespace {

// Keeps transactions short: sinks wait meanwhile.
constexpr int max_events_per_transaction = 1000;

// Pause in milliseconds before the next attempt when a due event was not moved: it is locked by
// another session, or the log rejected it.
constexpr int64 min_pause_after_none = 100;

} // namespace

void ScheduledRelease::handle_requests(uint32 reasons)
{
    if ((reasons & ipc::reason_event_scheduled) != 0)
        next_due_ = {};
    if ((reasons & ipc::reason_schedule_refused) != 0)
        next_refused_ = {};
}

// Rejected events have a timer and a transaction of their own, so they neither stop nor delay
// others.
bool ScheduledRelease::run_once()
{
    ReleaseResult released;
    if (Clock::now() >= next_due_) {
        released = release(release_due_events, milliseconds_to_next_due, next_due_);
        if (released.refused > 0)
            next_refused_ = {};
    }
    if (Clock::now() >= next_refused_)
        released =
            released + release(release_refused_events, milliseconds_to_next_refused, next_refused_);
    return released.moved > 0;
}

ReleaseResult ScheduledRelease::release(ReleaseFunction release_function,
                                        MillisecondsToNext milliseconds_to_next,
                                        sink::TimePoint& timer)
{
    const sink::TimePoint now = Clock::now();
    const int64 interval = settings::relay_interval;
    ReleaseResult released;
    int64 next = 0;
    const auto rollback = in_transaction("relay: scheduled events", [&] {
        released = release_function(max_events_per_transaction);
        next = milliseconds_to_next();
    });
    if (rollback) {
        pg::log_rate_limited(WARNING, "scheduled events cannot be released: " + rollback->message);
        timer = now + milliseconds(interval);
        return {};
    }
    const int64 min_pause = released.moved > 0 ? 0 : min_pause_after_none;
    timer = next > min_pause ? now + milliseconds(std::min(next, interval))
                             : Clock::now() + milliseconds(min_pause);
    return released;
}

} // namespace outbox
