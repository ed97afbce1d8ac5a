// Events that are not available yet: they wait in outbox_scheduled and enter the log when due.
#pragma once

#include "event.hpp"

namespace outbox {

// The event's available_at is set and lies in the future.
void schedule(const Event& event);

// Moves up to `limit` due events into the log, the longest due first. Returns how many.
int release_due(int limit);

} // namespace outbox
