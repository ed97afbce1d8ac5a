// Events that are not available yet: they wait in outbox_scheduled and enter the log when due.
#pragma once

#include "log/event.hpp"

namespace outbox {

// The event's available_at is set and lies in the future.
void schedule_event(const Event& event);

struct ReleaseResult {
    int moved = 0;
    int refused = 0;

    ReleaseResult operator+(const ReleaseResult& other) const
    {
        return {moved + other.moved, refused + other.refused};
    }
};

// Moves up to `limit` due events into the log, the longest due first. What the log refuses stays
// behind, and from then on is left to release_refused_events(). Both want a transaction of their
// own.
ReleaseResult release_due_events(int limit);

// Tries up to `limit` of those again whose time has come.
ReleaseResult release_refused_events(int limit);

// Until the next event is due, or the next refused one is to be tried again: 0 if one is. Call
// inside pg::as_owner().
int64 milliseconds_to_next_due();
int64 milliseconds_to_next_refused();

} // namespace outbox
