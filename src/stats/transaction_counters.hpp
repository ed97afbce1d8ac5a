// Counting. Counts belong to a transaction and are added to those in shared memory when it commits,
// by a callback that does nothing but add.
#pragma once

#include "stats/batch_summaries.hpp"

namespace outbox::stats {

void count_enqueued(TypeSlotNumber type, int count);
void count_delivered(int32 consumer, const EventFacts& event, TimestampTz now);
void count_failed(int32 consumer, Datum event_type, bool dead, Datum error);

// All of the batch was delivered. False if it is not remembered.
bool count_batch(int32 consumer, int64 token, TimestampTz now);

void set_up();

} // namespace outbox::stats
