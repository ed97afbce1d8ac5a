// Batches whose lease expires again and again: one of their messages may crash the worker. Such a
// batch is halved until the poison message is alone, and only that becomes a dead letter.
#pragma once

#include "consumer/batch_store.hpp"

namespace outbox {

// Returns whether taking over this lease counts an attempt: true if it expired under a worker,
// false if it was released or is unassigned. Does not compare locked_until with the time.
bool counts_as_attempt(const Lease& lease);

// Moves the only message of a batch to _outbox.dead_letters if its attempts are used up, counts and
// logs it, and settles the lease. Returns whether it did: false for more than one message, a lease
// that does not count as an attempt, and a sink, because a crash of the relay is no attempt.
bool dead_letter_if_exhausted(const Consumer& consumer, const Batch& batch, const Lease& lease,
                              TimestampTz now);

// Returns how many messages of an expired batch the next worker gets: half of them from the second
// delivery on. The rest becomes an unassigned batch.
Id next_delivery_size(const Batch& batch, const Lease& lease);

// Attempt number for a redelivered batch. It reaches max_attempts only when one message is left, so
// that a poison message cannot exhaust the attempts of others in its batch.
int next_attempt_number(const Consumer& consumer, const Batch& batch);

} // namespace outbox
