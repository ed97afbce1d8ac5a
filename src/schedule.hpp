// Events that are not available yet: they wait in outbox_scheduled and enter the log when due.
#pragma once

#include "event.hpp"

namespace outbox {

// The event's available_at is set and lies in the future.
void schedule(const Event& event);

// Moves up to `limit` due events into the log, the longest due first. Returns how many.
int release_due(int limit);

// Until the next event is due: 0 if one is. Call inside pg::as_owner().
int64 milliseconds_to_next_due();

} // namespace outbox
