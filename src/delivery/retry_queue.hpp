// _outbox.retries and _outbox.dead_letters: copies of messages that failed, one per consumer. For
// an ordered consumer a failed message blocks its aggregate: copies of later messages wait in
// _outbox.retries with available_at = 'infinity' until the earlier one leaves the table.
//
// Call everything here inside as_owner(). Redriven messages, which came back from the dead letters,
// neither block others nor are blocked: later messages of their aggregate were delivered long ago.
#pragma once

#include "consumer/batch_store.hpp"

namespace outbox {

// Returns whether an earlier message of the aggregate is in _outbox.retries.
bool is_aggregate_blocked(int32 consumer, const Message& message);

// Returns whether any aggregate of the consumer partition is blocked. Saves a query per message.
bool has_blocked_aggregates(int32 consumer, int32 consumer_partition);

// Inserts a copy of a message of the log that failed `attempts` times into _outbox.retries; keeps
// the row if there is one.
void add_retry(int32 consumer, int32 consumer_partition, const Message& message, int attempts,
               TimestampTz available_at, Datum error);

// Inserts a copy of a blocked message of the log into _outbox.retries, with available_at =
// 'infinity'; keeps the row if there is one.
void add_blocked_message(int32 consumer, int32 consumer_partition, const Message& message,
                         int attempts);

// Updates attempts, available_at and last_error of a retry that has failed once more.
void reschedule_retry(int32 consumer, Id id, int attempts, TimestampTz available_at, Datum error);

// Sets available_at = 'infinity' for retries that were delivered together with an earlier message
// of their aggregate that failed.
void block_messages_again(int32 consumer, IdRanges ids);

// Adds to the column attempts of retries whose lease expired.
void add_attempts(int32 consumer, IdRanges ids, int attempts);

// Sets available_at = 'infinity' for the later retries of the aggregate of a message that failed.
void block_later_messages(int32 consumer, const Message& message);

// Inserts a copy of a message into _outbox.dead_letters, or updates the existing one. Leaves
// _outbox.retries alone.
void move_to_dead_letters(int32 consumer, const Message& message, int attempts, Datum error,
                          TimestampTz now);

// Deletes rows of _outbox.retries. For an ordered consumer, sets available_at = `now` for the next
// blocked message of each of their aggregates.
void remove_retries(int32 consumer, bool ordered, IdRanges ids, TimestampTz now);

// Returns the earliest available_at after `now`: DT_NOEND if only blocked messages are left,
// std::nullopt if there is none.
std::optional<TimestampTz> next_retry_time(int32 consumer, TimestampTz now);

// Returns the consumer partitions with due retries, ordered by their earliest available_at.
std::span<const int32> due_consumer_partitions(int32 consumer, TimestampTz now);

// Returns the ids of the `limit` due retries of an unordered consumer that are due longest and in
// no open batch.
IdRanges due_retries(int32 consumer, std::span<const int64> open_tokens, TimestampTz now,
                     int limit);

// Returns the ids of due retries of an ordered consumer's partition, each with the messages blocked
// behind it, at most `limit` ids. Leaves out aggregates whose first retry is in an open batch.
IdRanges due_with_blocked(int32 consumer, int32 consumer_partition,
                          std::span<const int64> open_tokens, TimestampTz now, int limit);

// Iterates over the retries with these ids, in id order. The constructor reads all of them into an
// SPI tuple table; ids without a row are skipped.
class RetryScan {
public:
    RetryScan(int32 consumer, IdRanges ids);

    // Returns nullptr at the end. The message is valid until the next call.
    const Message* next();

    // Columns of the message that next() returned last: earlier failures, and whether it came back
    // from the dead letters.
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
