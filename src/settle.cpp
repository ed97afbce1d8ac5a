#include "settle.hpp"

#include "hand_out.hpp"
#include "pg/errors.hpp"
#include "pg/posts.hpp"
#include "pg/spi.hpp"
#include "pg/values.hpp"
#include "pg/wake.hpp"
#include "retries.hpp"

extern "C" {
#include "common/pg_prng.h"
#include "utils/hsearch.h"
}

namespace outbox {

namespace {

// A batch with its lease locked.
struct Held {
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

// The columns of the query in hold().
enum : int {
    q_acked_at = 1,
    q_superseded_by,
    q_locked_until,
    q_remaining,
    q_failed,
    q_partition,
    q_attempts,
    q_deliveries,
    q_from_retries,
    q_ids,
    q_consumer,
    q_name,
    q_ordered,
    q_kind
};

void check_held(int64 token, const pg::Row& row)
{
    const auto locked_until = row.find(q_locked_until);
    if (!locked_until)
        refuse(pg::token_unknown, token, "is unknown", "It was never given out.");
    if (!row.is_null(q_superseded_by))
        refuse(pg::lease_lost, token, "has lost its lease: another worker has the batch now",
               lost_hint);
    if (!row.is_null(q_acked_at))
        refuse(pg::lease_lost, token, "has lost its lease: the whole batch is settled", lost_hint);
    if (DatumGetTimestampTz(*locked_until) == DT_NOBEGIN)
        refuse(pg::lease_lost, token, "has lost its lease: the batch was handed back", lost_hint);
}

// Locks the lease, or refuses the token.
Held hold(int64 token)
{
    static constinit pg::Statement lock{
        "SELECT l.acked_at, l.superseded_by, l.locked_until, l.remaining, l.failed, b.partition,"
        " b.attempts, b.deliveries, b.from_retries, b.ids, c.consumer_id, c.name, c.ordered, c.kind"
        " FROM @schema@.outbox_leases l"
        " JOIN @schema@.outbox_batches b ON b.consumer_id = l.consumer_id AND b.token = l.token"
        " JOIN @schema@.outbox_consumers c ON c.consumer_id = l.consumer_id"
        " WHERE l.token = $1 FOR UPDATE OF l",
        {INT8OID}};
    const Datum values[] = {Int64GetDatum(token)};
    if (lock.execute_now(values) == 0)
        refuse(pg::token_unknown, token, "is unknown",
               "It was never given out, its consumer is gone, or it was settled long ago.");
    const pg::Row row(0);
    if (pg::to_view(row.get(q_kind)) != "worker" && !pg::is_relay())
        refuse(pg::token_unknown, token, "is the relay's", "Nobody else settles what a sink has.");
    check_held(token, row);

    Held held;
    held.batch.token = token;
    held.batch.root = 0;
    held.batch.partition = DatumGetInt32(row.get(q_partition));
    held.batch.attempts = DatumGetInt32(row.get(q_attempts));
    held.batch.deliveries = DatumGetInt32(row.get(q_deliveries));
    held.batch.from_retries = DatumGetBool(row.get(q_from_retries));
    held.all = pg::from_multirange(row.get(q_ids));
    const auto remaining = row.find(q_remaining);
    held.batch.ids = remaining ? pg::from_multirange(*remaining) : held.all;
    const auto failed = row.find(q_failed);
    held.failed = failed ? pg::from_multirange(*failed) : IdRanges{};
    held.consumer = DatumGetInt32(row.get(q_consumer));
    held.consumer_name = row.get(q_name);
    held.ordered = DatumGetBool(row.get(q_ordered));
    return held;
}

// The ids as a set, all of them in the batch and none of them out of the worker's hands.
IdRanges checked(const Held& held, std::span<const int64> ids)
{
    pg::Growing<IdRange> set;
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
    pg::Growing<IdRange> rest;
    rest.reserve(set.size() + taken.size());
    rest.set_size(subtract(set, taken, rest.data()));
    return rest.view();
}

IdRanges common(IdRanges set, IdRanges other)
{
    pg::Growing<IdRange> both;
    both.reserve(set.size() + other.size());
    both.set_size(intersect(set, other, both.data()));
    return both.view();
}

// An aggregate by 128 bits of hash: two that share them are not to be expected.
struct AggregateKey {
    uint64 halves[2];
};

AggregateKey key_of(const Message& message)
{
    AggregateKey key;
    for (uint64 seed = 0; seed < 2; ++seed) {
        uint64 hash = seed;
        for (const Column column : {col_aggregate_type, col_aggregate_id}) {
            const std::string_view bytes = pg::to_view(message.values[column]);
            hash = DatumGetUInt64(
                hash_any_extended(reinterpret_cast<const unsigned char*>(bytes.data()),
                                  static_cast<int>(bytes.size()), hash));
        }
        key.halves[seed] = hash;
    }
    return key;
}

// Goes through what is left of a batch and moves what failed, and what must wait behind it.
class Failing {
public:
    Failing(const Held& held, IdRanges failed, const Failure& failure)
        : batch_(held.batch), consumer_(read_consumer(held.consumer_name).consumer),
          failing_(failed), failure_(failure), now_(GetCurrentTimestamp())
    {
        HASHCTL shape = {};
        shape.keysize = sizeof(AggregateKey);
        shape.entrysize = sizeof(AggregateKey);
        shape.hcxt = CurrentMemoryContext;
        blocked_ =
            hash_create("aggregates that wait", 64, &shape, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
    }

    // A message that came back from the dead letters neither waits nor makes others wait.
    void visit(const Message& message, int failures, bool keeps_order);
    void finish();
    int dead() const { return dead_; }
    IdRanges parked() const { return parked_.view(); }

private:
    bool waits(const Message& message) const;
    void block(const Message& message);
    void take_out_of_batch(Id id);
    TimestampTz next_attempt(int attempts) const;

    const Batch& batch_;
    const Consumer consumer_;
    IdRanges failing_;
    const Failure& failure_;
    TimestampTz now_;
    HTAB* blocked_; // aggregates of which a message has failed
    Id visited_ = 0;
    pg::Growing<IdRange> out_;
    pg::Growing<IdRange> parked_;
    pg::Growing<IdRange> buried_;
    int dead_ = 0;
};

bool Failing::waits(const Message& message) const
{
    const AggregateKey key = key_of(message);
    return hash_search(blocked_, &key, HASH_FIND, nullptr) != nullptr;
}

void Failing::block(const Message& message)
{
    const AggregateKey key = key_of(message);
    (void)hash_search(blocked_, &key, HASH_ENTER, nullptr);
    park_later_ones(consumer_.id, message);
}

void Failing::take_out_of_batch(Id id)
{
    append_to(out_, id);
}

TimestampTz Failing::next_attempt(int attempts) const
{
    const double chance = pg_prng_double(&pg_global_prng_state);
    return now_ + failure_.retry_in.value_or(consumer_.policy.pause(attempts, chance));
}

void Failing::visit(const Message& message, int failures, bool keeps_order)
{
    const Id id = message.id();
    const bool must_wait = keeps_order && waits(message);
    if (!contains(failing_, id)) {
        if (must_wait) {
            if (!batch_.from_retries)
                park(consumer_.id, batch_.partition, message, failures + batch_.attempts - 1);
            append_to(parked_, id);
            take_out_of_batch(id);
        }
        return;
    }

    ++visited_;
    const int attempts = failures + batch_.attempts;
    take_out_of_batch(id);
    if (failure_.dead || attempts >= consumer_.policy.max_attempts) {
        bury(consumer_.id, message, attempts, failure_.error, now_);
        append_to(buried_, id);
        ++dead_;
        return;
    }
    // Behind another one it has no time of its own.
    const TimestampTz available_at = must_wait ? DT_NOEND : next_attempt(attempts);
    if (batch_.from_retries)
        postpone(consumer_.id, id, attempts, available_at, failure_.error);
    else
        add_retry(consumer_.id, batch_.partition, message, attempts, available_at, failure_.error);
    if (keeps_order && !must_wait)
        block(message);
}

void Failing::finish()
{
    if (visited_ != count_ids(failing_))
        ereport(ERROR,
                (errcode(pg::id_not_in_batch),
                 errmsg("a message of lock_token " INT64_FORMAT " has left the log", batch_.token),
                 errhint("It cannot be tried again; ack it.")));
    if (batch_.from_retries) {
        count_attempts(consumer_.id, parked_.view(), batch_.attempts - 1);
        park_again(consumer_.id, parked_.view());
        remove_retries(consumer_.id, consumer_.ordered, buried_.view(), now_);
    }
    const IdRanges rest = without(batch_.ids, out_.view());
    take_out(batch_.token, rest, out_.view());
    if (rest.empty())
        settle_lease(batch_.token, now_);
    pg::wake_at_commit(); // for a retry at once
}

} // namespace

int ack(int64 token, const std::span<const int64>* ids)
{
    const Held held = hold(token);
    const TimestampTz now = GetCurrentTimestamp();
    const Batch& batch = held.batch;
    const IdRanges settled = ids == nullptr ? batch.ids : common(batch.ids, checked(held, *ids));
    const int count = static_cast<int>(count_ids(settled));
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
    static constinit pg::Statement update{
        "UPDATE @schema@.outbox_leases SET acked_at = $2, remaining = NULL WHERE token = ANY ($1)"
        " AND acked_at IS NULL AND superseded_by IS NULL AND locked_until > '-infinity'",
        {INT8ARRAYOID, TIMESTAMPTZOID}};
    const Datum values[] = {pg::to_bigint_array(tokens),
                            TimestampTzGetDatum(GetCurrentTimestamp())};
    if (update.execute_now(values) != tokens.size())
        refuse(pg::lease_lost, tokens.front(), "or another has lost its lease", lost_hint);
}

Failed fail(int64 token, std::span<const int64> ids, const Failure& failure)
{
    const Held held = hold(token);
    const IdRanges failed = checked(held, ids);
    if (count_ids(common(held.batch.ids, failed)) != count_ids(failed))
        ereport(ERROR, (errcode(pg::id_not_in_batch), errmsg("a message of lock_token " INT64_FORMAT
                                                             " cannot fail any more: it was acked",
                                                             token)));
    Failing failing(held, failed, failure);
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
    return {static_cast<int>(count_ids(failed)), failing.dead(), failing.parked()};
}

IdRanges park_behind(int64 token, std::span<const int64> ids)
{
    const Held held = hold(token);
    const Batch& batch = held.batch;
    // A chain of retries is in one batch, with all that waits behind its first message.
    if (batch.from_retries)
        return {};
    const Consumer consumer = read_consumer(held.consumer_name).consumer;
    pg::Growing<IdRange> parked;
    visit_messages(common(batch.ids, checked(held, ids)), [&](const Message& message) {
        if (must_wait(consumer, batch.partition, message, batch.attempts - 1))
            append_to(parked, message.id());
        return true;
    });
    if (parked.empty())
        return {};
    const IdRanges rest = without(batch.ids, parked.view());
    take_out(token, rest, parked.view());
    if (rest.empty())
        settle_lease(token, GetCurrentTimestamp());
    return parked.view();
}

TimestampTz heartbeat(int64 token, std::optional<int64> lease)
{
    static constinit pg::Statement extend{
        "UPDATE @schema@.outbox_leases SET lease = coalesce($2, lease),"
        " locked_until = $3 + coalesce($2, lease) WHERE token = $1 RETURNING locked_until",
        {INT8OID, INTERVALOID, TIMESTAMPTZOID}};
    (void)hold(token);
    const Interval length = pg::to_interval(lease.value_or(0));
    const Datum values[] = {Int64GetDatum(token), IntervalPGetDatum(&length),
                            TimestampTzGetDatum(GetCurrentTimestamp())};
    extend.execute_now(values, lease ? nullptr : " n ");
    return DatumGetTimestampTz(pg::Row(0).get(1));
}

int release(int64 token)
{
    static constinit pg::Statement give_back{
        "UPDATE @schema@.outbox_leases SET locked_until = '-infinity' WHERE token = $1", {INT8OID}};
    const Held held = hold(token);
    const Datum values[] = {Int64GetDatum(token)};
    give_back.execute_now(values);
    pg::wake_at_commit();
    return static_cast<int>(count_ids(held.batch.ids));
}

} // namespace outbox
