// Scheduled events: they wait in _outbox.scheduled until they are due, and then enter the log.
#pragma once

#include "log/event.hpp"

namespace outbox {

// Inserts the event into _outbox.scheduled and wakes waiting consumers and the relay at commit.
// event.available_at must be set, and in the future.
void schedule_event(const Event& event);

// Numbers of scheduled events that entered the log, and that the log refused.
struct ReleaseResult {
    int moved = 0;
    int refused = 0;

    ReleaseResult operator+(const ReleaseResult& other) const
    {
        return {moved + other.moved, refused + other.refused};
    }
};

// Moves up to `limit` due events into the log, by due time. An event that the log refuses stays in
// _outbox.scheduled and is left to release_refused_events(). Both functions make all constraints of
// the transaction immediate, so they need a transaction of their own. They skip locked rows, and
// raise a WARNING if events were refused.
ReleaseResult release_due_events(int limit);

// Moves up to `limit` refused events whose try_again_at has passed into the log. An event that is
// refused again stays in _outbox.scheduled with a later try_again_at.
ReleaseResult release_refused_events(int limit);

// Return the time until the next event is due, or the next refused event is tried again: 0 if that
// time has passed, PG_INT64_MAX if there is no such event. Call inside as_owner().
int64 milliseconds_to_next_due();
int64 milliseconds_to_next_refused();

} // namespace outbox
