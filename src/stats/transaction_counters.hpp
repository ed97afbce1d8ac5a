// Transactional counting. Counts are collected per subtransaction in TopTransactionContext, and an
// xact callback adds them to the counters in shared memory at commit; the callback allocates
// nothing and raises no error. The caller of a count function has checked is_enabled().
#pragma once

#include "stats/batch_summaries.hpp"

namespace outbox::stats {

// Counts `count` events of a type as enqueued.
void count_enqueued(TypeSlotNumber type, int count);
// Counts one delivered event for its consumer and its type, with its latency until `now`.
void count_delivered(int32 consumer, const EventFacts& event, TimestampTz now);
// Counts one failed attempt for its consumer and its type; `dead` if the message went to the dead
// letters. The error text is stored at once: a rollback does not undo it.
void count_failed(int32 consumer, Datum event_type, bool dead, Datum error);

// Counts a whole batch as delivered by its summary in shared memory. Returns false, and counts
// nothing, if there is no summary of the batch.
bool count_batch(int32 consumer, int64 token, TimestampTz now);

// Requests shared memory and registers the xact callbacks. Called once, when the library is loaded.
void set_up();

} // namespace outbox::stats
