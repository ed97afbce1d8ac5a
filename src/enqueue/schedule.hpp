// Events that are not available yet: they wait in outbox_scheduled and enter the log when due.
#pragma once

#include "log/event.hpp"

namespace outbox {

// The event's available_at is set and lies in the future.
void schedule(const Event& event);

struct Released {
    int moved = 0;
    int refused = 0;

    Released operator+(const Released& other) const
    {
        return {moved + other.moved, refused + other.refused};
    }
};

// Moves up to `limit` due events into the log, the longest due first. What the log refuses stays
// behind, and from then on is left to release_refused(). Both want a transaction of their own.
Released release_due(int limit);

// Tries up to `limit` of those again whose time has come.
Released release_refused(int limit);

// Until the next event is due, or the next refused one is to be tried again: 0 if one is. Call
// inside pg::as_owner().
int64 milliseconds_to_next_due();
int64 milliseconds_to_next_refused();

} // namespace outbox
