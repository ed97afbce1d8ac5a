// Messages that failed on their own: copies, per consumer, that wait for another attempt or were
// given up. A consumer that keeps order parks an aggregate behind its failed message: what comes
// later waits here too, until its turn.
//
// All of this inside pg::as_owner().
#pragma once

#include "consumer/batch_store.hpp"

namespace outbox {

// Does an earlier message of the aggregate wait here, so that this one must wait behind it?
bool is_aggregate_blocked(int32 consumer, const Message& message);

// Is there any aggregate of this partition that is parked?
bool has_blocked_aggregates(int32 consumer, int32 consumer_partition);

// Keeps a message of the log that failed `attempts` times.
void add_retry(int32 consumer, int32 consumer_partition, const Message& message, int attempts,
               TimestampTz available_at, Datum error);

// Keeps a message of the log that waits behind another.
void add_blocked_message(int32 consumer, int32 consumer_partition, const Message& message,
                         int attempts);

// A message that was here already has failed once more, or waits behind one that has.
void reschedule_retry(int32 consumer, Id id, int attempts, TimestampTz available_at, Datum error);
void block_messages_again(int32 consumer, IdRanges ids);

// These were handed out so many times more, without anybody saying what became of them.
void add_attempts(int32 consumer, IdRanges ids, int attempts);

// This message is going to wait: later ones of its aggregate that are here wait behind it.
void block_later_messages(int32 consumer, const Message& message);

// Keeps a message for good, as a dead letter.
void move_to_dead_letters(int32 consumer, const Message& message, int attempts, Datum error,
                          TimestampTz now);

// These are settled. In an ordered consumer the next of their aggregates have their turn.
void remove_retries(int32 consumer, bool ordered, IdRanges ids, TimestampTz now);

// When the next is due that is not due yet.
std::optional<TimestampTz> next_retry_time(int32 consumer, TimestampTz now);

// The partitions in which something is due.
std::span<const int32> due_consumer_partitions(int32 consumer, TimestampTz now);

// What is due in a consumer without order, and in no open batch.
IdRanges due_retries(int32 consumer, std::span<const int64> open_tokens, TimestampTz now,
                     int limit);

// What is due in a partition of an ordered consumer, each with what waits behind it.
// Those whose first is in an open batch are in hand.
IdRanges due_with_blocked(int32 consumer, int32 consumer_partition,
                          std::span<const int64> open_tokens, TimestampTz now, int limit);

// Messages with these ids, in their order, and how often each has failed.
class RetryScan {
public:
    RetryScan(int32 consumer, IdRanges ids);

    const Message* next();

    // Of the message that next() returned.
    int failures() const { return failures_; }
    bool redriven() const { return redriven_; }

private:
    SPITupleTable* rows_;
    uint64 count_;
    uint64 next_row_ = 0;
    Message message_;
    int failures_ = 0;
    bool redriven_ = false;
};

} // namespace outbox
