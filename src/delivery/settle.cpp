#include "delivery/settle.hpp"

#include "consumer/aggregate_set.hpp"
#include "delivery/dead_letter_log.hpp"
#include "delivery/deliver_batch.hpp"
#include "delivery/retry_queue.hpp"
#include "extension/guc.hpp"
#include "extension/owner_spi.hpp"
#include "extension/relations.hpp"
#include "extension/sqlstates.hpp"
#include "extension/tenant.hpp"
#include "ipc/wakeup.hpp"
#include "ipc/worker_registry.hpp"
#include "pg/datum.hpp"
#include "pg/index_scan.hpp"

extern "C" {
#include "common/pg_prng.h"
}

namespace outbox {

namespace {

// A batch with its lease locked.
struct LockedBatch {
    Batch batch;           // its ids are those that are left to settle
    IdRanges original_ids; // those that it had in the beginning
    IdRanges failed_ids;
    Datum consumer_name;
    int32 consumer;
    bool ordered;
};

[[noreturn]] void reject_token(int sqlstate, int64 token, const char* reason, const char* hint)
{
    ereport(ERROR, (errcode(sqlstate), errmsg("lock_token " INT64_FORMAT " %s", token, reason),
                    errhint("%s", hint)));
    pg_unreachable();
}

constexpr const char* lease_lost_hint = "Roll back what was done for this batch, and claim again.";

// What is read of a lease, its batch and its consumer.
constexpr pg::ColumnSpec lease_columns[] = {{"token", INT8OID},
                                            {"consumer_id", INT4OID},
                                            {"acked_at", TIMESTAMPTZOID},
                                            {"superseded_by", INT8OID},
                                            {"locked_until", TIMESTAMPTZOID},
                                            {"remaining", INT8MULTIRANGEOID},
                                            {"failed", INT8MULTIRANGEOID}};
enum : int { l_consumer = 1, l_acked_at, l_superseded_by, l_locked_until, l_remaining, l_failed };
using LeaseRow = pg::StoredRow<std::size(lease_columns)>;

constexpr pg::ColumnSpec batch_columns[] = {{"consumer_id", INT4OID},  {"token", INT8OID},
                                            {"partition", INT4OID},    {"attempts", INT4OID},
                                            {"deliveries", INT4OID},   {"from_retries", BOOLOID},
                                            {"ids", INT8MULTIRANGEOID}};
enum : int { b_partition = 2, b_attempts, b_deliveries, b_from_retries, b_ids };

constexpr pg::ColumnSpec consumer_columns[] = {{"consumer_id", INT4OID},
                                               {"name", TEXTOID},
                                               {"ordered", BOOLOID},
                                               {"kind", TEXTOID},
                                               {"tenant_id", INT8OID}};
enum : int { c_name = 1, c_ordered, c_kind, c_tenant_id };
using ConsumerRow = pg::StoredRow<std::size(consumer_columns)>;

void check_lease_is_held(int64 token, const LeaseRow& lease)
{
    const auto locked_until = lease.find(l_locked_until);
    if (!locked_until)
        reject_token(token_unknown, token, "is unknown", "It was never given out.");
    if (lease.find(l_superseded_by))
        reject_token(lease_lost, token, "has lost its lease: another worker has the batch now",
                     lease_lost_hint);
    if (lease.find(l_acked_at))
        reject_token(lease_lost, token, "has lost its lease: the whole batch is settled",
                     lease_lost_hint);
    if (DatumGetTimestampTz(*locked_until) == DT_NOBEGIN)
        reject_token(lease_lost, token, "has lost its lease: the batch was handed back",
                     lease_lost_hint);
}

[[noreturn]] void reject_unknown_token(int64 token)
{
    reject_token(token_unknown, token, "is unknown",
                 "It was never given out, its consumer is gone, or it was settled long ago.");
}

constinit pg::IndexedTable leases{lease_columns, 1};
constinit pg::IndexedTable consumers{consumer_columns, 1};

std::optional<LeaseRow> lock_lease(Snapshot snapshot, int64 token)
{
    const pg::IndexKey by_token[] = {{INT8OID, Int64GetDatum(token)}};
    return leases.lock_first(extension_relations().leases, snapshot, by_token);
}

bool is_visible_to_tenant(const ConsumerRow& consumer)
{
    const auto tenant = consumer.find(c_tenant_id);
    return can_see_tenant(tenant ? std::optional(DatumGetInt64(*tenant)) : std::nullopt);
}

// Before a lease is locked: who waits for it knows that there is one.
void reject_other_tenants(Snapshot snapshot, int64 token)
{
    const pg::IndexKey by_token[] = {{INT8OID, Int64GetDatum(token)}};
    const auto lease = leases.find_first(extension_relations().leases, snapshot, by_token);
    if (!lease)
        reject_unknown_token(token);
    const pg::IndexKey by_id[] = {{INT4OID, lease->get(l_consumer)}};
    const auto consumer = consumers.find_first(extension_relations().consumers, snapshot, by_id);
    if (!consumer || !is_visible_to_tenant(*consumer))
        reject_unknown_token(token);
}

LockedBatch lock_batch_with_snapshot(Snapshot snapshot, int64 token)
{
    static constinit pg::IndexedTable batches{batch_columns, 2};
    if (settings::tenant_id())
        reject_other_tenants(snapshot, token);
    const auto lease = lock_lease(snapshot, token);
    if (!lease)
        reject_unknown_token(token);
    const pg::IndexKey keys[] = {{INT4OID, lease->get(l_consumer)},
                                 {INT8OID, Int64GetDatum(token)}};
    const auto batch = batches.find_first(extension_relations().batches, snapshot, keys);
    const auto consumer =
        consumers.find_first(extension_relations().consumers, snapshot, std::span(keys, 1));
    if (!batch || !consumer || !is_visible_to_tenant(*consumer))
        reject_unknown_token(token);
    if (pg::to_view(consumer->get(c_kind)) != "worker" && !ipc::is_relay())
        reject_token(token_unknown, token, "is the relay's",
                     "Nobody else settles what a sink has.");
    check_lease_is_held(token, *lease);

    LockedBatch locked;
    locked.batch.token = token;
    locked.batch.root_token = 0;
    locked.batch.consumer_partition = DatumGetInt32(batch->get(b_partition));
    locked.batch.attempts = DatumGetInt32(batch->get(b_attempts));
    locked.batch.deliveries = DatumGetInt32(batch->get(b_deliveries));
    locked.batch.from_retries = DatumGetBool(batch->get(b_from_retries));
    locked.original_ids = pg::from_multirange(batch->get(b_ids));
    const auto remaining = lease->find(l_remaining);
    locked.batch.ids = remaining ? pg::from_multirange(*remaining) : locked.original_ids;
    const auto failed = lease->find(l_failed);
    locked.failed_ids = failed ? pg::from_multirange(*failed) : IdRanges{};
    locked.consumer = DatumGetInt32(lease->get(l_consumer));
    locked.consumer_name = consumer->get(c_name);
    locked.ordered = DatumGetBool(consumer->get(c_ordered));
    return locked;
}

// Locks the lease, or refuses the token.
LockedBatch lock_batch(int64 token)
{
    return pg::with_latest_snapshot(
        [&](Snapshot snapshot) { return lock_batch_with_snapshot(snapshot, token); });
}

// The ids as a set, all of them in the batch and none of them out of the worker's hands.
IdRanges checked_ids(const LockedBatch& locked, std::span<const int64> ids)
{
    pg::PallocVector<IdRange> set;
    set.reserve(ids.size());
    for (const int64 id : ids) {
        if (!contains(locked.original_ids, id))
            ereport(ERROR, (errcode(id_not_in_batch),
                            errmsg("message " INT64_FORMAT
                                   " is not in the batch of lock_token " INT64_FORMAT,
                                   id, locked.batch.token)));
        if (contains(locked.failed_ids, id))
            ereport(ERROR,
                    (errcode(id_not_in_batch),
                     errmsg("message " INT64_FORMAT
                            " is no longer in the batch of lock_token " INT64_FORMAT,
                            id, locked.batch.token),
                     errdetail("It failed, or it waits behind an earlier message of its aggregate "
                               "that failed.")));
        set.push({id, id + 1});
    }
    set.set_size(merge_ranges(set.data(), set.size()));
    return set.view();
}

IdRanges subtract_ids(IdRanges set, IdRanges taken)
{
    pg::PallocVector<IdRange> rest;
    rest.reserve(set.size() + taken.size());
    rest.set_size(subtract(set, taken, rest.data()));
    return rest.view();
}

IdRanges intersect_ids(IdRanges set, IdRanges other)
{
    pg::PallocVector<IdRange> both;
    both.reserve(set.size() + other.size());
    both.set_size(intersect(set, other, both.data()));
    return both.view();
}

// Goes through what is left of a batch and moves what failed, and what must wait behind it.
class FailureWriter {
public:
    // One failure for all, or one for each, in the order of ids.
    FailureWriter(const LockedBatch& locked, IdRanges failed, std::span<const Failure> failures)
        : batch_(locked.batch), consumer_(read_consumer(locked.consumer_name).consumer),
          failing_ids_(failed), failures_(failures), now_(GetCurrentTimestamp())
    {}

    // A message that came back from the dead letters neither waits nor makes others wait.
    void process_message(const Message& message, int failures, bool preserves_order);
    void finish();
    int dead() const { return dead_count_; }
    IdRanges blocked() const { return blocked_ids_.view(); }

private:
    const Failure& failure() const { return failures_[failures_.size() == 1 ? 0 : failures_seen_]; }
    void block_aggregate(const Message& message);
    void mark_removed(Id id);
    TimestampTz retry_time(const Failure& failure, int attempts) const;

    const Batch& batch_;
    const Consumer consumer_;
    IdRanges failing_ids_;
    std::span<const Failure> failures_;
    TimestampTz now_;
    AggregateSet blocked_aggregates_;
    std::size_t failures_seen_ = 0; // of those that fail
    pg::PallocVector<IdRange> removed_ids_;
    pg::PallocVector<IdRange> blocked_ids_;
    pg::PallocVector<IdRange> dead_ids_;
    Datum last_error_ = 0; // of the last one that was buried
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
    // Behind another one it has no time of its own.
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
                 errhint("It cannot be tried again; ack it.")));
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
    ipc::wake_all_at_commit(); // for a retry at once
}

// A whole batch is remembered from when it was claimed. Otherwise its messages are looked at again.
void count_delivered(const LockedBatch& locked, IdRanges settled, TimestampTz now)
{
    if (count_ids(settled) == count_ids(locked.original_ids) &&
        stats::count_batch(locked.consumer, locked.batch.token, now))
        return;
    if (locked.batch.from_retries) {
        RetryScan scan(locked.consumer, settled);
        while (const Message* message = scan.next())
            stats::count_delivered(locked.consumer, event_facts_of(*message), now);
        return;
    }
    visit_messages(settled, [&](const Message& message) {
        stats::count_delivered(locked.consumer, event_facts_of(message), now);
        return true;
    });
}

} // namespace

int ack_messages(int64 token, const std::span<const int64>* ids, StatsBy stats_by)
{
    const LockedBatch locked = lock_batch(token);
    const TimestampTz now = GetCurrentTimestamp();
    const Batch& batch = locked.batch;
    const IdRanges settled =
        ids == nullptr ? batch.ids : intersect_ids(batch.ids, checked_ids(locked, *ids));
    const int count = static_cast<int>(count_ids(settled));
    if (stats::is_enabled() && stats_by == StatsBy::callee && count > 0)
        count_delivered(locked, settled, now);
    if (batch.from_retries && count > 0)
        remove_retries(locked.consumer, locked.ordered, settled, now);
    const IdRanges rest = subtract_ids(batch.ids, settled);
    if (rest.empty())
        settle_lease(token, now);
    else if (count > 0)
        remove_from_batch(token, rest, {});
    if (rest.empty() && locked.ordered)
        ipc::wake_all_at_commit(); // its partition is free
    return count;
}

void ack_whole_batches(std::span<const int64> tokens)
{
    const TimestampTz now = GetCurrentTimestamp();
    for (const int64 token : tokens) {
        const auto lease = pg::with_latest_snapshot(
            [&](Snapshot snapshot) { return lock_lease(snapshot, token); });
        if (!lease)
            reject_unknown_token(token);
        check_lease_is_held(token, *lease);
        settle_lease(token, now);
    }
}

FailResult fail_messages(int64 token, std::span<const int64> ids, std::span<const Failure> failures)
{
    const LockedBatch locked = lock_batch(token);
    const IdRanges failed = checked_ids(locked, ids);
    if (count_ids(intersect_ids(locked.batch.ids, failed)) != count_ids(failed))
        ereport(ERROR, (errcode(id_not_in_batch), errmsg("a message of lock_token " INT64_FORMAT
                                                         " cannot fail any more: it was acked",
                                                         token)));
    FailureWriter writer(locked, failed, failures);
    if (locked.batch.from_retries) {
        RetryScan scan(locked.consumer, locked.batch.ids);
        while (const Message* message = scan.next())
            writer.process_message(*message, scan.failures(), locked.ordered && !scan.redriven());
    } else {
        // Without order, what did not fail need not be looked at.
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
        // They wait there already, where the failed one has parked them.
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

TimestampTz heartbeat(int64 token, std::optional<int64> lease)
{
    static constinit Statement extend{
        "UPDATE _outbox.leases SET lease = coalesce($2, lease),"
        " locked_until = $3 + coalesce($2, lease) WHERE token = $1 RETURNING locked_until",
        {INT8OID, INTERVALOID, TIMESTAMPTZOID}};
    (void)lock_batch(token);
    const Interval length = pg::to_interval(lease.value_or(0));
    const Datum values[] = {Int64GetDatum(token), IntervalPGetDatum(&length),
                            TimestampTzGetDatum(GetCurrentTimestamp())};
    extend.execute_with_latest_snapshot(values, lease ? nullptr : " n ");
    return DatumGetTimestampTz(ResultRow(0).get(1));
}

int release_batch(int64 token)
{
    static constinit Statement give_back{
        "UPDATE _outbox.leases SET locked_until = '-infinity' WHERE token = $1", {INT8OID}};
    const LockedBatch locked = lock_batch(token);
    const Datum values[] = {Int64GetDatum(token)};
    give_back.execute_with_latest_snapshot(values);
    ipc::wake_all_at_commit();
    return static_cast<int>(count_ids(locked.batch.ids));
}

} // namespace outbox
