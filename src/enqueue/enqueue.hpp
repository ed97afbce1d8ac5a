#pragma once

#include "log/event.hpp"

namespace outbox {

// Enqueues the events in their order. results[i] is the tracking_id of events[i], or of the event
// that it repeats. Moves the events that enter the log to the front of the array.
void enqueue_events(Event* events, int count, TimestampTz now, pg_uuid_t* results);

} // namespace outbox
