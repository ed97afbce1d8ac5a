#include "consumer_api/peek.hpp"

#include "consumer/read_page.hpp"
#include "consumer_api/message_result_set.hpp"
#include "delivery/retry_queue.hpp"
#include "extension/locks.hpp"
#include "extension/owner_spi.hpp"
#include "extension/preload.hpp"
#include "ipc/wakeup.hpp"
#include "pg/exceptions.hpp"
#include "upcast/upcast.hpp"

namespace outbox {

namespace {

// Forwards messages up to a limit.
class LimitedReceiver {
public:
    LimitedReceiver(MessageReceiver& receiver, int limit) : receiver_(receiver), remaining_(limit)
    {}

    bool is_full() const { return remaining_ == 0; }
    int remaining() const { return remaining_; }

    // Passes the message on. Call only if is_full() is false.
    void receive(const Message& message, int attempts)
    {
        receiver_.receive(message, {0, 0, attempts, false});
        --remaining_;
    }

private:
    MessageReceiver& receiver_;
    int remaining_;
};

// Passes on the messages of _outbox.retries with these ids, until `out` is full. `attempts` is
// added to the earlier failures of each.
void peek_at_retries(int32 consumer, IdRanges ids, int attempts, LimitedReceiver& out)
{
    RetryScan scan(consumer, ids);
    while (const Message* message = out.is_full() ? nullptr : scan.next())
        out.receive(*message, scan.failures() + attempts);
}

// Passes on the messages of the log with these ids, until `out` is full.
void peek_at_log(IdRanges ids, int attempts, LimitedReceiver& out)
{
    visit_messages(ids, [&](const Message& message) {
        out.receive(message, attempts);
        return !out.is_full();
    });
}

// Passes on the unsettled rest of the lease's batch, with the attempts that the next claim would
// deliver; nothing if the batch is no longer open.
void peek_at_batch(int32 consumer, const Lease& lease, LimitedReceiver& out)
{
    const auto batch = read_open_batch(lease.token);
    if (!batch)
        return;
    const int attempts = batch->attempts + (lease.is_unassigned ? 0 : 1);
    if (batch->from_retries)
        peek_at_retries(consumer, batch->ids, attempts, out);
    else
        peek_at_log(batch->ids, attempts, out);
}

// Returns whether the consumer partition has an open lease with a worker, live or expired.
bool has_open_batch(const pg::PallocVector<Lease>& leases, int32 consumer_partition)
{
    for (const Lease& lease : leases)
        if (lease.consumer_partition == consumer_partition && !lease.is_unassigned)
            return true;
    return false;
}

// Returns whether a claim would get a due retry. For an ordered consumer, partitions that have a
// batch with a worker, or are locked by another session, do not count; this takes their locks
// briefly.
bool has_due_retries(const ConsumerState& state, const pg::PallocVector<Lease>& leases,
                     TimestampTz now)
{
    const Consumer& consumer = state.consumer;
    if (!state.has_due_retries)
        return false;
    if (!consumer.ordered)
        return !due_retries(consumer.id, state.progress.open_tokens, now, 1).empty();
    for (const int32 consumer_partition : due_consumer_partitions(consumer.id, now))
        if (!has_open_batch(leases, consumer_partition) &&
            !is_consumer_partition_locked(consumer.id, consumer_partition))
            return true;
    return false;
}

// Returns whether a claim would get an expired or unassigned batch. Batches that a transaction in
// progress is changing, or whose consumer partition is locked, do not count; this takes the locks
// of consumer partitions briefly.
bool has_waiting_batch(const Consumer& consumer, const pg::PallocVector<Lease>& leases,
                       TimestampTz now)
{
    for (const Lease& lease : leases) {
        const bool is_due =
            lease.has_expired(now) ||
            (lease.is_unassigned &&
             (!consumer.ordered || !has_open_batch(leases, lease.consumer_partition)));
        if (is_due && !is_lease_being_changed(lease.token) &&
            (!consumer.ordered ||
             !is_consumer_partition_locked(consumer.id, lease.consumer_partition)))
            return true;
    }
    return false;
}

// Returns whether a claim would get new messages of the log, or would move the cursor past enough
// rows without a match to store it.
bool has_new_messages(const ConsumerState& state)
{
    Cursor cursor = state.progress.cursor;
    return read_page(cursor, state.consumer.filter, 1, max_rows_examined,
                     [](const Message&) { return true; })
        .should_save_cursor();
}

// Returns the milliseconds until the next lease expires or the next retry is due, up to a maximum;
// a short time if a lease has expired or is unassigned.
long next_recheck_ms(int32 consumer, const pg::PallocVector<Lease>& leases, TimestampTz now)
{
    // A batch that could be claimed, but is locked by another session.
    constexpr long recheck_soon_ms = 20;
    for (const Lease& lease : leases)
        if (!lease.is_live(now))
            return recheck_soon_ms;
    // Commits wake waiting sessions through shared memory, which only a preloaded library has.
    // Without it, the caller has to check more often.
    constexpr long max_wait_with_wake_ms = 1000;
    constexpr long max_wait_without_wake_ms = 250;
    const long max_wait_ms = preloaded ? max_wait_with_wake_ms : max_wait_without_wake_ms;
    TimestampTz due = now + max_wait_ms * 1000;
    for (const Lease& lease : leases)
        if (lease.is_live(now))
            due = Min(due, lease.locked_until);
    if (const auto first = next_retry_time(consumer, now))
        due = Min(due, *first);
    return static_cast<long>((due - now) / 1000) + 1;
}

// Sets `oldest` to the message if it is the first one or has an earlier occurred_at.
void update_oldest(OldestEvent& oldest, const Message& message)
{
    const TimestampTz time = DatumGetTimestampTz(message.values[col_occurred_at]);
    if (!oldest.found || time < oldest.occurred_at)
        oldest.occurred_at = time;
    oldest.found = true;
}

} // namespace

OldestEvent find_oldest_unsettled(Datum name)
{
    constexpr int64 max_examined = 1000;
    OldestEvent oldest = {false, 0, true};
    const ConsumerState state = read_consumer(name);
    // Of the unsettled messages in batches, the one with the least id is taken as the oldest.
    if (const auto min_id = min_unsettled_id(state.consumer.id)) {
        const IdRange first[] = {{*min_id, *min_id + 1}};
        visit_messages(first, [&](const Message& message) {
            update_oldest(oldest, message);
            return false;
        });
    }
    Cursor cursor = state.progress.cursor;
    OldestEvent unwanted = {};
    const auto accepts = [&](const Message& message) {
        if (!state.consumer.filter.matches(message)) {
            update_oldest(unwanted, message);
            return false;
        }
        update_oldest(oldest, message);
        return true;
    };
    const PageResult page = read_page(cursor, Filter{}, 1, max_examined, accepts);
    if (page.accepted == 0 && !page.at_end && unwanted.found && !oldest.found)
        return {true, unwanted.occurred_at, false};
    return oldest;
}

void peek_messages(Datum name, int max_rows, MessageReceiver& receiver)
{
    UpcastingReceiver upcasting(receiver);
    const ConsumerState state = read_consumer(name);
    LimitedReceiver out(upcasting.begin(state.consumer), max_rows);
    const int32 consumer = state.consumer.id;
    const TimestampTz now = GetCurrentTimestamp();
    const pg::PallocVector<Lease> leases = open_leases(state.progress.open_tokens);
    for (const Lease& lease : leases)
        if (lease.has_expired(now) && !out.is_full())
            peek_at_batch(consumer, lease, out);
    if (!out.is_full())
        peek_at_retries(consumer,
                        due_retries(consumer, state.progress.open_tokens, now, out.remaining()), 1,
                        out);
    for (const Lease& lease : leases)
        if (lease.is_unassigned && !out.is_full())
            peek_at_batch(consumer, lease, out);
    if (!out.is_full()) {
        Cursor cursor = state.progress.cursor;
        read_page(cursor, state.consumer.filter, out.remaining(), max_rows_examined,
                  [&](const Message& message) {
                      out.receive(message, 1);
                      return true;
                  });
    }
    // A claim would not deliver messages that cannot be upcast, or are blocked behind those.
    (void)upcasting.finish();
}

Readiness check_readiness(Datum name)
{
    constexpr long recheck_while_locked_ms = 20;
    const ConsumerState state = read_consumer(name);
    const Consumer& consumer = state.consumer;
    const TimestampTz now = GetCurrentTimestamp();
    const pg::PallocVector<Lease> leases = open_leases(state.progress.open_tokens);
    if (consumer.paused)
        return {false, next_recheck_ms(consumer.id, leases, now)};
    if (is_consumer_locked(consumer.id))
        return {false, recheck_while_locked_ms};
    const bool ready = has_waiting_batch(consumer, leases, now) ||
                       has_due_retries(state, leases, now) ||
                       (may_read_new(consumer, leases.view()) && has_new_messages(state));
    return {ready, ready ? 0 : next_recheck_ms(consumer.id, leases, now)};
}

} // namespace outbox

OUTBOX_SQL_FUNCTION(outbox_peek)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        const Datum name = checked_consumer_name(
            PG_ARGISNULL(0) ? std::nullopt : std::optional<Datum>(PG_GETARG_DATUM(0)));
        if (PG_ARGISNULL(1))
            ereport(ERROR,
                    (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("max_rows must not be NULL")));
        const int max_rows = batch_size_argument(PG_GETARG_DATUM(1), "max_rows");
        ResultSetReceiver result(fcinfo);
        as_owner([&] { peek_messages(name, max_rows, result); });
        return Datum{0};
    });
}

// Internal: wakes waiting consumers and the relay at commit. For SQL functions that make messages
// claimable.
OUTBOX_SQL_FUNCTION(outbox_wake_relay)
{
    return outbox::pg::sql_entry([&] {
        outbox::ipc::wake_all_at_commit();
        outbox::ipc::wake_relay_at_commit(outbox::ipc::reason_sinks_changed);
        PG_RETURN_VOID();
    });
}
