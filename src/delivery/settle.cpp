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
    Batch batch;  // its ids are those that are left to settle
    IdRanges all; // those that it had in the beginning
    IdRanges failed;
    Datum consumer_name;
    int32 consumer;
    bool ordered;
};

[[noreturn]] void refuse(int sqlstate, int64 token, const char* reason, const char* hint)
{
    ereport(ERROR, (errcode(sqlstate), errmsg("lock_token " INT64_FORMAT " %s", token, reason),
                    errhint("%s", hint)));
    pg_unreachable();
}

constexpr const char* lost_hint = "Roll back what was done for this batch, and claim again.";

// What is read of a lease, its batch and its consumer.
constexpr pg::ColumnShape lease_columns[] = {{"token", INT8OID},
                                             {"consumer_id", INT4OID},
                                             {"acked_at", TIMESTAMPTZOID},
                                             {"superseded_by", INT8OID},
                                             {"locked_until", TIMESTAMPTZOID},
                                             {"remaining", INT8MULTIRANGEOID},
                                             {"failed", INT8MULTIRANGEOID}};
enum : int { l_consumer = 1, l_acked_at, l_superseded_by, l_locked_until, l_remaining, l_failed };
using LeaseRow = pg::StoredRow<std::size(lease_columns)>;

constexpr pg::ColumnShape batch_columns[] = {{"consumer_id", INT4OID},  {"token", INT8OID},
                                             {"partition", INT4OID},    {"attempts", INT4OID},
                                             {"deliveries", INT4OID},   {"from_retries", BOOLOID},
                                             {"ids", INT8MULTIRANGEOID}};
enum : int { b_partition = 2, b_attempts, b_deliveries, b_from_retries, b_ids };

constexpr pg::ColumnShape consumer_columns[] = {{"consumer_id", INT4OID},
                                                {"name", TEXTOID},
                                                {"ordered", BOOLOID},
                                                {"kind", TEXTOID},
                                                {"tenant_id", INT8OID}};
enum : int { c_name = 1, c_ordered, c_kind, c_tenant_id };
using ConsumerRow = pg::StoredRow<std::size(consumer_columns)>;

void check_held(int64 token, const LeaseRow& lease)
{
    const auto locked_until = lease.find(l_locked_until);
    if (!locked_until)
        refuse(pg::token_unknown, token, "is unknown", "It was never given out.");
    if (lease.find(l_superseded_by))
        refuse(pg::lease_lost, token, "has lost its lease: another worker has the batch now",
               lost_hint);
    if (lease.find(l_acked_at))
        refuse(pg::lease_lost, token, "has lost its lease: the whole batch is settled", lost_hint);
    if (DatumGetTimestampTz(*locked_until) == DT_NOBEGIN)
        refuse(pg::lease_lost, token, "has lost its lease: the batch was handed back", lost_hint);
}

[[noreturn]] void refuse_unknown(int64 token)
{
    refuse(pg::token_unknown, token, "is unknown",
           "It was never given out, its consumer is gone, or it was settled long ago.");
}

constinit pg::IndexedTable leases{lease_columns, 1};
constinit pg::IndexedTable consumers{consumer_columns, 1};

std::optional<LeaseRow> lock_lease(Snapshot snapshot, int64 token)
{
    const pg::IndexKey by_token[] = {{INT8OID, Int64GetDatum(token)}};
    return leases.lock_first(pg::objects().leases, snapshot, by_token);
}

bool is_shown(const ConsumerRow& consumer)
{
    const auto tenant = consumer.find(c_tenant_id);
    return shows_tenant(tenant ? std::optional(DatumGetInt64(*tenant)) : std::nullopt);
}

// Before a lease is locked: who waits for it knows that there is one.
void refuse_others(Snapshot snapshot, int64 token)
{
    const pg::IndexKey by_token[] = {{INT8OID, Int64GetDatum(token)}};
    const auto lease = leases.find_first(pg::objects().leases, snapshot, by_token);
    if (!lease)
        refuse_unknown(token);
    const pg::IndexKey by_id[] = {{INT4OID, lease->get(l_consumer)}};
    const auto consumer = consumers.find_first(pg::objects().consumers, snapshot, by_id);
    if (!consumer || !is_shown(*consumer))
        refuse_unknown(token);
}

LockedBatch hold_at(Snapshot snapshot, int64 token)
{
    static constinit pg::IndexedTable batches{batch_columns, 2};
    if (settings::tenant_id())
        refuse_others(snapshot, token);
    const auto lease = lock_lease(snapshot, token);
    if (!lease)
        refuse_unknown(token);
    const pg::IndexKey keys[] = {{INT4OID, lease->get(l_consumer)},
                                 {INT8OID, Int64GetDatum(token)}};
    const auto batch = batches.find_first(pg::objects().batches, snapshot, keys);
    const auto consumer =
        consumers.find_first(pg::objects().consumers, snapshot, std::span(keys, 1));
    if (!batch || !consumer || !is_shown(*consumer))
        refuse_unknown(token);
    if (pg::to_view(consumer->get(c_kind)) != "worker" && !pg::is_relay())
        refuse(pg::token_unknown, token, "is the relay's", "Nobody else settles what a sink has.");
    check_held(token, *lease);

    LockedBatch held;
    held.batch.token = token;
    held.batch.root = 0;
    held.batch.partition = DatumGetInt32(batch->get(b_partition));
    held.batch.attempts = DatumGetInt32(batch->get(b_attempts));
    held.batch.deliveries = DatumGetInt32(batch->get(b_deliveries));
    held.batch.from_retries = DatumGetBool(batch->get(b_from_retries));
    held.all = pg::from_multirange(batch->get(b_ids));
    const auto remaining = lease->find(l_remaining);
    held.batch.ids = remaining ? pg::from_multirange(*remaining) : held.all;
    const auto failed = lease->find(l_failed);
    held.failed = failed ? pg::from_multirange(*failed) : IdRanges{};
    held.consumer = DatumGetInt32(lease->get(l_consumer));
    held.consumer_name = consumer->get(c_name);
    held.ordered = DatumGetBool(consumer->get(c_ordered));
    return held;
}

// Locks the lease, or refuses the token.
LockedBatch hold(int64 token)
{
    return pg::with_latest_snapshot([&](Snapshot snapshot) { return hold_at(snapshot, token); });
}

// The ids as a set, all of them in the batch and none of them out of the worker's hands.
IdRanges checked(const LockedBatch& held, std::span<const int64> ids)
{
    pg::PallocVector<IdRange> set;
    set.reserve(ids.size());
    for (const int64 id : ids) {
        if (!contains(held.all, id))
            ereport(ERROR, (errcode(pg::id_not_in_batch),
                            errmsg("message " INT64_FORMAT
                                   " is not in the batch of lock_token " INT64_FORMAT,
                                   id, held.batch.token)));
        if (contains(held.failed, id))
            ereport(ERROR,
                    (errcode(pg::id_not_in_batch),
                     errmsg("message " INT64_FORMAT
                            " is no longer in the batch of lock_token " INT64_FORMAT,
                            id, held.batch.token),
                     errdetail("It failed, or it waits behind an earlier message of its aggregate "
                               "that failed.")));
        set.push({id, id + 1});
    }
    set.set_size(normalize(set.data(), set.size()));
    return set.view();
}

IdRanges without(IdRanges set, IdRanges taken)
{
    pg::PallocVector<IdRange> rest;
    rest.reserve(set.size() + taken.size());
    rest.set_size(subtract(set, taken, rest.data()));
    return rest.view();
}

IdRanges common(IdRanges set, IdRanges other)
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
    FailureWriter(const LockedBatch& held, IdRanges failed, std::span<const Failure> failures)
        : batch_(held.batch), consumer_(read_consumer(held.consumer_name).consumer),
          failing_(failed), failures_(failures), now_(GetCurrentTimestamp())
    {}

    // A message that came back from the dead letters neither waits nor makes others wait.
    void visit(const Message& message, int failures, bool preserves_order);
    void finish();
    int dead() const { return dead_; }
    IdRanges blocked() const { return parked_.view(); }

private:
    const Failure& failure() const { return failures_[failures_.size() == 1 ? 0 : visited_]; }
    void block(const Message& message);
    void take_out_of_batch(Id id);
    TimestampTz next_attempt(const Failure& failure, int attempts) const;

    const Batch& batch_;
    const Consumer consumer_;
    IdRanges failing_;
    std::span<const Failure> failures_;
    TimestampTz now_;
    AggregateSet blocked_;
    std::size_t visited_ = 0; // of those that fail
    pg::PallocVector<IdRange> out_;
    pg::PallocVector<IdRange> parked_;
    pg::PallocVector<IdRange> buried_;
    Datum last_error_ = 0; // of the last one that was buried
    int dead_ = 0;
};

void FailureWriter::block(const Message& message)
{
    blocked_.add(message);
    block_later_messages(consumer_.id, message);
}

void FailureWriter::take_out_of_batch(Id id)
{
    append_to(out_, id);
}

TimestampTz FailureWriter::next_attempt(const Failure& failure, int attempts) const
{
    const double chance = pg_prng_double(&pg_global_prng_state);
    return now_ + failure.retry_in.value_or(consumer_.policy.pause(attempts, chance));
}

void FailureWriter::visit(const Message& message, int failures, bool preserves_order)
{
    const Id id = message.id();
    const bool must_wait = preserves_order && blocked_.contains(message);
    if (!contains(failing_, id)) {
        if (must_wait) {
            if (!batch_.from_retries)
                add_blocked(consumer_.id, batch_.partition, message,
                            failures + batch_.attempts - 1);
            append_to(parked_, id);
            take_out_of_batch(id);
        }
        return;
    }

    const Failure& failure = this->failure();
    ++visited_;
    const int attempts = failures + batch_.attempts - (failure.counts ? 0 : 1);
    const bool dies = failure.dead || (failure.counts && attempts >= consumer_.policy.max_attempts);
    take_out_of_batch(id);
    if (stats::is_on() && failure.counts)
        stats::count_failed(consumer_.id, message.values[col_event_type], dies, failure.error);
    if (dies) {
        move_to_dead_letters(consumer_.id, message, attempts, failure.error, now_);
        append_to(buried_, id);
        last_error_ = failure.error;
        ++dead_;
        return;
    }
    // Behind another one it has no time of its own.
    const TimestampTz available_at = must_wait ? DT_NOEND : next_attempt(failure, attempts);
    if (batch_.from_retries)
        postpone(consumer_.id, id, attempts, available_at, failure.error);
    else
        add_retry(consumer_.id, batch_.partition, message, attempts, available_at, failure.error);
    if (preserves_order && !must_wait)
        block(message);
}

void FailureWriter::finish()
{
    if (static_cast<Id>(visited_) != count_ids(failing_))
        ereport(ERROR,
                (errcode(pg::id_not_in_batch),
                 errmsg("a message of lock_token " INT64_FORMAT " has left the log", batch_.token),
                 errhint("It cannot be tried again; ack it.")));
    if (batch_.from_retries) {
        count_attempts(consumer_.id, parked_.view(), batch_.attempts - 1);
        block_again(consumer_.id, parked_.view());
        remove_retries(consumer_.id, consumer_.ordered, buried_.view(), now_);
    }
    log_dead_letters(consumer_.id, buried_.view(), last_error_);
    const IdRanges rest = without(batch_.ids, out_.view());
    take_out(batch_.token, rest, out_.view());
    if (rest.empty())
        settle_lease(batch_.token, now_);
    pg::wake_at_commit(); // for a retry at once
}

// A whole batch is remembered from when it was claimed. Otherwise its messages are looked at again.
void count_delivered(const LockedBatch& held, IdRanges settled, TimestampTz now)
{
    if (count_ids(settled) == count_ids(held.all) &&
        stats::count_batch(held.consumer, held.batch.token, now))
        return;
    if (held.batch.from_retries) {
        RetryScan scan(held.consumer, settled);
        while (const Message* message = scan.next())
            stats::count_delivered(held.consumer, facts_of(*message), now);
        return;
    }
    visit_messages(settled, [&](const Message& message) {
        stats::count_delivered(held.consumer, facts_of(message), now);
        return true;
    });
}

} // namespace

int ack(int64 token, const std::span<const int64>* ids, Counts counts)
{
    const LockedBatch held = hold(token);
    const TimestampTz now = GetCurrentTimestamp();
    const Batch& batch = held.batch;
    const IdRanges settled = ids == nullptr ? batch.ids : common(batch.ids, checked(held, *ids));
    const int count = static_cast<int>(count_ids(settled));
    if (stats::is_on() && counts == Counts::here && count > 0)
        count_delivered(held, settled, now);
    if (batch.from_retries && count > 0)
        remove_retries(held.consumer, held.ordered, settled, now);
    const IdRanges rest = without(batch.ids, settled);
    if (rest.empty())
        settle_lease(token, now);
    else if (count > 0)
        take_out(token, rest, {});
    if (rest.empty() && held.ordered)
        pg::wake_at_commit(); // its partition is free
    return count;
}

void ack_whole(std::span<const int64> tokens)
{
    const TimestampTz now = GetCurrentTimestamp();
    for (const int64 token : tokens) {
        const auto lease = pg::with_latest_snapshot(
            [&](Snapshot snapshot) { return lock_lease(snapshot, token); });
        if (!lease)
            refuse_unknown(token);
        check_held(token, *lease);
        settle_lease(token, now);
    }
}

Failed fail(int64 token, std::span<const int64> ids, std::span<const Failure> failures)
{
    const LockedBatch held = hold(token);
    const IdRanges failed = checked(held, ids);
    if (count_ids(common(held.batch.ids, failed)) != count_ids(failed))
        ereport(ERROR, (errcode(pg::id_not_in_batch), errmsg("a message of lock_token " INT64_FORMAT
                                                             " cannot fail any more: it was acked",
                                                             token)));
    FailureWriter failing(held, failed, failures);
    if (held.batch.from_retries) {
        RetryScan scan(held.consumer, held.batch.ids);
        while (const Message* message = scan.next())
            failing.visit(*message, scan.failures(), held.ordered && !scan.redriven());
    } else {
        // Without order, what did not fail need not be looked at.
        visit_messages(held.ordered ? held.batch.ids : failed, [&](const Message& message) {
            failing.visit(message, 0, held.ordered);
            return true;
        });
    }
    failing.finish();
    return {static_cast<int>(count_ids(failed)), failing.dead(), failing.blocked()};
}

IdRanges block_behind(int64 token, std::span<const int64> ids)
{
    const LockedBatch held = hold(token);
    const Batch& batch = held.batch;
    const Consumer consumer = read_consumer(held.consumer_name).consumer;
    pg::PallocVector<IdRange> blocked;
    const IdRanges behind = common(batch.ids, checked(held, ids));
    if (batch.from_retries) {
        // They wait there already, where the failed one has parked them.
        RetryScan scan(held.consumer, behind);
        while (const Message* message = scan.next())
            if (!scan.redriven() && is_blocked(held.consumer, *message))
                append_to(blocked, message->id());
    } else {
        visit_messages(behind, [&](const Message& message) {
            if (must_wait(consumer, batch.partition, message, batch.attempts - 1))
                append_to(blocked, message.id());
            return true;
        });
    }
    if (blocked.empty())
        return {};
    const IdRanges rest = without(batch.ids, blocked.view());
    take_out(token, rest, blocked.view());
    if (rest.empty())
        settle_lease(token, GetCurrentTimestamp());
    return blocked.view();
}

TimestampTz heartbeat(int64 token, std::optional<int64> lease)
{
    static constinit pg::Statement extend{
        "UPDATE _outbox.leases SET lease = coalesce($2, lease),"
        " locked_until = $3 + coalesce($2, lease) WHERE token = $1 RETURNING locked_until",
        {INT8OID, INTERVALOID, TIMESTAMPTZOID}};
    (void)hold(token);
    const Interval length = pg::to_interval(lease.value_or(0));
    const Datum values[] = {Int64GetDatum(token), IntervalPGetDatum(&length),
                            TimestampTzGetDatum(GetCurrentTimestamp())};
    extend.execute_with_latest_snapshot(values, lease ? nullptr : " n ");
    return DatumGetTimestampTz(pg::Row(0).get(1));
}

int release(int64 token)
{
    static constinit pg::Statement give_back{
        "UPDATE _outbox.leases SET locked_until = '-infinity' WHERE token = $1", {INT8OID}};
    const LockedBatch held = hold(token);
    const Datum values[] = {Int64GetDatum(token)};
    give_back.execute_with_latest_snapshot(values);
    pg::wake_at_commit();
    return static_cast<int>(count_ids(held.batch.ids));
}

} // namespace outbox
