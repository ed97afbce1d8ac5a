// Messages that failed on their own: copies, per consumer, that wait for another attempt or were
// given up. A consumer that keeps order parks an aggregate behind its failed message: what comes
// later waits here too, until its turn.
//
// All of this inside pg::as_owner().
#pragma once

#include "batch.hpp"

namespace outbox {

// Does anything of the aggregate wait here, so that this message must wait behind it?
bool is_parked(int32 consumer, const Message& message);

// Is there any aggregate of this partition that is parked?
bool has_parked(int32 consumer, int32 partition);

// Keeps a message of the log that failed `attempts` times.
void add_retry(int32 consumer, int32 partition, const Message& message, int attempts,
               TimestampTz available_at, Datum error);

// Keeps a message of the log that waits behind another.
void park(int32 consumer, int32 partition, const Message& message, int attempts);

// A message that was here already has failed once more, or waits behind one that has.
void postpone(int32 consumer, Id id, int attempts, TimestampTz available_at, Datum error);
void park_again(int32 consumer, IdRanges ids);

// Keeps a message for good, as a dead letter.
void bury(int32 consumer, const Message& message, int attempts, Datum error, TimestampTz now);

// These are settled. In an ordered consumer the next of their aggregates have their turn.
void remove_retries(int32 consumer, bool ordered, int32 partition, IdRanges ids, TimestampTz now);

// The partitions in which something is due.
std::span<const int32> due_partitions(int32 consumer, TimestampTz now);

// What is due in a consumer without order, and in no open batch.
IdRanges due_retries(int32 consumer, std::span<const int64> open_tokens, TimestampTz now,
                     int limit);

// What is due in a partition of an ordered consumer, each with what waits behind it.
IdRanges due_chains(int32 consumer, int32 partition, TimestampTz now, int limit);

// Messages with these ids, in their order, and how often each has failed.
class RetryScan {
public:
    RetryScan(int32 consumer, IdRanges ids);

    const Message* next();
    int failures() const { return failures_; } // of the message that next() returned

private:
    SPITupleTable* rows_;
    uint64 count_;
    uint64 at_ = 0;
    Message message_;
    int failures_ = 0;
};

} // namespace outbox
