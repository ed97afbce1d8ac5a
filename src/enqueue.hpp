#pragma once

#include "event.hpp"

namespace outbox {

// Enqueues the events in their order. results[i] is the tracking_id of events[i], or of the event
// that it repeats. Moves the events that enter the log to the front of the array.
void enqueue(Event* events, int count, TimestampTz now, pg_uuid_t* results);

// The declared type of an argument: one C++ function serves all overloads of its SQL function.
Oid argument_type(FunctionCallInfo fcinfo, int number);

// A jsonb, json or text as jsonb.
Datum to_jsonb(Datum value, Oid type);

} // namespace outbox
