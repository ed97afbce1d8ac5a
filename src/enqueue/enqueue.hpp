// The part of enqueueing that outbox_enqueue() and outbox_enqueue_many() share.
#pragma once

#include "log/event.hpp"

namespace outbox {

// Enqueues up to max_events_per_append checked events in array order: claims dedup keys, inserts
// events for later into _outbox.scheduled and appends the others to the log. results[i] is the
// tracking_id of events[i], or of the event that it duplicates. Moves the events for the log to the
// front of the array.
void enqueue_events(Event* events, int count, TimestampTz now, pg_uuid_t* results);

} // namespace outbox
