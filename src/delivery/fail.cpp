#include "delivery/settle.hpp"

#include "consumer/aggregate_set.hpp"
#include "delivery/dead_letter_log.hpp"
#include "delivery/deliver_batch.hpp"
#include "delivery/locked_batch.hpp"
#include "delivery/retry_queue.hpp"
#include "extension/sqlstates.hpp"
#include "ipc/wakeup.hpp"

extern "C" {
#include "common/pg_prng.h"
}

namespace outbox {

namespace {

// Takes the messages of a batch in id order; moves failed ones to the retries or the dead letters,
// and messages that they block to the retries.
class FailureWriter {
public:
    // `failures`: one for all ids, or one for each, in id order.
    FailureWriter(const LockedBatch& locked, IdRanges failed, std::span<const Failure> failures)
        : batch_(locked.batch), consumer_(read_consumer(locked.consumer_name).consumer),
          failing_ids_(failed), failures_(failures), now_(GetCurrentTimestamp())
    {}

    // Writes a failed or blocked message to _outbox.retries or _outbox.dead_letters and counts a
    // failure; does nothing for others. `failures`: how often the message failed before this batch.
    // `preserves_order` is false for messages of unordered consumers and for redriven ones.
    void process_message(const Message& message, int failures, bool preserves_order);
    // Deletes dead retries, blocks those behind a failed one, stores what is left of the batch,
    // logs dead letters and wakes claims at commit. Raises id_not_in_batch if a failed message was
    // not passed, because it has left the log.
    void finish();
    int dead() const { return dead_count_; }
    IdRanges blocked() const { return blocked_ids_.view(); }

private:
    // The failure of the next failing message.
    const Failure& failure() const { return failures_[failures_.size() == 1 ? 0 : failures_seen_]; }
    // Blocks later messages of the aggregate, in this batch and in _outbox.retries.
    void block_aggregate(const Message& message);
    // Notes that the message leaves the batch; finish() stores it.
    void mark_removed(Id id);
    // Returns now plus retry_in, or plus the back-off of the retry policy with jitter.
    TimestampTz retry_time(const Failure& failure, int attempts) const;

    const Batch& batch_;
    const Consumer consumer_;
    IdRanges failing_ids_;
    std::span<const Failure> failures_;
    TimestampTz now_;
    AggregateSet blocked_aggregates_;
    std::size_t failures_seen_ = 0; // failing messages so far: the index into failures_
    pg::PallocVector<IdRange> removed_ids_;
    pg::PallocVector<IdRange> blocked_ids_;
    pg::PallocVector<IdRange> dead_ids_;
    Datum last_error_ = 0; // of the last dead letter
    int dead_count_ = 0;
};

void FailureWriter::block_aggregate(const Message& message)
{
    blocked_aggregates_.add(message);
    block_later_messages(consumer_.id, message);
}

void FailureWriter::mark_removed(Id id)
{
    append_id(removed_ids_, id);
}

TimestampTz FailureWriter::retry_time(const Failure& failure, int attempts) const
{
    const double jitter = pg_prng_double(&pg_global_prng_state);
    return now_ + failure.retry_in.value_or(consumer_.retry_policy.backoff_after(attempts, jitter));
}

void FailureWriter::process_message(const Message& message, int failures, bool preserves_order)
{
    const Id id = message.id();
    const bool must_wait = preserves_order && blocked_aggregates_.contains(message);
    if (!contains(failing_ids_, id)) {
        if (must_wait) {
            if (!batch_.from_retries)
                add_blocked_message(consumer_.id, batch_.consumer_partition, message,
                                    failures + batch_.attempts - 1);
            append_id(blocked_ids_, id);
            mark_removed(id);
        }
        return;
    }

    const Failure& failure = this->failure();
    ++failures_seen_;
    const int attempts = failures + batch_.attempts - (failure.counts_as_attempt ? 0 : 1);
    const bool dies = failure.dead || (failure.counts_as_attempt &&
                                       attempts >= consumer_.retry_policy.max_attempts);
    mark_removed(id);
    if (stats::is_enabled() && failure.counts_as_attempt)
        stats::count_failed(consumer_.id, message.values[col_event_type], dies, failure.error);
    if (dies) {
        move_to_dead_letters(consumer_.id, message, attempts, failure.error, now_);
        append_id(dead_ids_, id);
        last_error_ = failure.error;
        ++dead_count_;
        return;
    }
    // A blocked message becomes due when the one before it leaves the retries.
    const TimestampTz available_at = must_wait ? DT_NOEND : retry_time(failure, attempts);
    if (batch_.from_retries)
        reschedule_retry(consumer_.id, id, attempts, available_at, failure.error);
    else
        add_retry(consumer_.id, batch_.consumer_partition, message, attempts, available_at,
                  failure.error);
    if (preserves_order && !must_wait)
        block_aggregate(message);
}

void FailureWriter::finish()
{
    if (static_cast<Id>(failures_seen_) != count_ids(failing_ids_))
        ereport(ERROR,
                (errcode(id_not_in_batch),
                 errmsg("a message of lock_token " INT64_FORMAT " has left the log", batch_.token),
                 errhint("Acknowledge it with outbox_ack(): it cannot be retried.")));
    if (batch_.from_retries) {
        add_attempts(consumer_.id, blocked_ids_.view(), batch_.attempts - 1);
        block_messages_again(consumer_.id, blocked_ids_.view());
        remove_retries(consumer_.id, consumer_.ordered, dead_ids_.view(), now_);
    }
    log_dead_letters(consumer_.id, dead_ids_.view(), last_error_);
    const IdRanges rest = subtract_ids(batch_.ids, removed_ids_.view());
    remove_from_batch(batch_.token, rest, removed_ids_.view());
    if (rest.empty())
        settle_lease(batch_.token, now_);
    ipc::wake_all_at_commit(); // the first retries may be immediate
}

} // namespace

FailResult fail_messages(int64 token, std::span<const int64> ids, std::span<const Failure> failures)
{
    const LockedBatch locked = lock_batch(token);
    const IdRanges failed = checked_ids(locked, ids);
    if (count_ids(intersect_ids(locked.batch.ids, failed)) != count_ids(failed))
        ereport(ERROR, (errcode(id_not_in_batch), errmsg("a message of lock_token " INT64_FORMAT
                                                         " cannot fail, because it was acked",
                                                         token)));
    FailureWriter writer(locked, failed, failures);
    if (locked.batch.from_retries) {
        RetryScan scan(locked.consumer, locked.batch.ids);
        while (const Message* message = scan.next())
            writer.process_message(*message, scan.failures(), locked.ordered && !scan.redriven());
    } else {
        // An unordered consumer has no blocked messages, so only the failed ones are read.
        visit_messages(locked.ordered ? locked.batch.ids : failed, [&](const Message& message) {
            writer.process_message(message, 0, locked.ordered);
            return true;
        });
    }
    writer.finish();
    return {static_cast<int>(count_ids(failed)), writer.dead(), writer.blocked()};
}

IdRanges block_behind(int64 token, std::span<const int64> ids)
{
    const LockedBatch locked = lock_batch(token);
    const Batch& batch = locked.batch;
    const Consumer consumer = read_consumer(locked.consumer_name).consumer;
    pg::PallocVector<IdRange> blocked;
    const IdRanges behind = intersect_ids(batch.ids, checked_ids(locked, ids));
    if (batch.from_retries) {
        // Their rows are in _outbox.retries: block_later_messages() has blocked them there.
        RetryScan scan(locked.consumer, behind);
        while (const Message* message = scan.next())
            if (!scan.redriven() && is_aggregate_blocked(locked.consumer, *message))
                append_id(blocked, message->id());
    } else {
        visit_messages(behind, [&](const Message& message) {
            if (add_if_blocked(consumer, batch.consumer_partition, message, batch.attempts - 1))
                append_id(blocked, message.id());
            return true;
        });
    }
    if (blocked.empty())
        return {};
    const IdRanges rest = subtract_ids(batch.ids, blocked.view());
    remove_from_batch(token, rest, blocked.view());
    if (rest.empty())
        settle_lease(token, GetCurrentTimestamp());
    return blocked.view();
}

} // namespace outbox
