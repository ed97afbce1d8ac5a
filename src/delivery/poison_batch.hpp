// Messages that kill their workers. Nobody says so: their leases run out, again and again. A batch
// is split until such a message is alone, and then it dies alone.
#pragma once

#include "consumer/batch_store.hpp"

namespace outbox {

// Did the lease run out, so that this counts as an attempt? Not if it was handed back or never
// handed out.
bool counts_as_attempt(const Lease& lease);

// If the message was alone in its batch, and that was its last attempt, it is a dead letter now.
bool dead_letter_if_exhausted(const Consumer& consumer, const Batch& batch, const Lease& lease,
                              TimestampTz now);

// How many messages of an expired batch are handed out next; the rest waits for another worker.
Id next_delivery_size(const Batch& batch, const Lease& lease);

// As which attempt the messages count that are handed out again. Neighbours do not use up their
// last one: that everybody has alone.
int next_attempt_number(const Consumer& consumer, const Batch& batch);

} // namespace outbox
