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

// Passes messages on until there are enough.
class Limited {
public:
    Limited(MessageReceiver& sink, int limit) : sink_(sink), left_(limit) {}

    bool is_full() const { return left_ == 0; }
    int left() const { return left_; }

    void put(const Message& message, int attempts)
    {
        sink_.put(message, {0, 0, attempts, false});
        --left_;
    }

private:
    MessageReceiver& sink_;
    int left_;
};

void peek_at_retries(int32 consumer, IdRanges ids, int attempts, Limited& out)
{
    RetryScan scan(consumer, ids);
    while (const Message* message = out.is_full() ? nullptr : scan.next())
        out.put(*message, scan.failures() + attempts);
}

void peek_at_log(IdRanges ids, int attempts, Limited& out)
{
    visit_messages(ids, [&](const Message& message) {
        out.put(message, attempts);
        return !out.is_full();
    });
}

void peek_at_batch(int32 consumer, const Lease& lease, Limited& out)
{
    const auto batch = look_at(lease.token);
    if (!batch)
        return;
    const int attempts = batch->attempts + (lease.is_unassigned ? 0 : 1);
    if (batch->from_retries)
        peek_at_retries(consumer, batch->ids, attempts, out);
    else
        peek_at_log(batch->ids, attempts, out);
}

bool is_busy(const pg::PallocVector<Lease>& leases, int32 partition)
{
    for (const Lease& lease : leases)
        if (lease.partition == partition && !lease.is_unassigned)
            return true;
    return false;
}

bool has_due_retries(const ConsumerState& state, const pg::PallocVector<Lease>& leases,
                     TimestampTz now)
{
    const Consumer& consumer = state.consumer;
    if (!state.has_due_retries)
        return false;
    if (!consumer.ordered)
        return !due_retries(consumer.id, state.progress.open_tokens, now, 1).empty();
    for (const int32 partition : due_partitions(consumer.id, now))
        if (!is_busy(leases, partition) && !pg::is_partition_locked(consumer.id, partition))
            return true;
    return false;
}

// One that a claim would get: not one that another is at, or whose partition another has.
bool has_waiting_batch(const Consumer& consumer, const pg::PallocVector<Lease>& leases,
                       TimestampTz now)
{
    for (const Lease& lease : leases) {
        const bool is_due =
            lease.has_expired(now) ||
            (lease.is_unassigned && (!consumer.ordered || !is_busy(leases, lease.partition)));
        if (is_due && !is_being_changed(lease.token) &&
            (!consumer.ordered || !pg::is_partition_locked(consumer.id, lease.partition)))
            return true;
    }
    return false;
}

bool has_news(const ConsumerState& state)
{
    Cursor cursor = state.progress.cursor;
    return read_page(cursor, state.consumer.filter, 1, reading_budget,
                     [](const Message&) { return true; })
        .is_worth_remembering();
}

// When the next lease expires or the next retry is due, but not later than a while from now.
long next_look(int32 consumer, const pg::PallocVector<Lease>& leases, TimestampTz now)
{
    // What is due already, and in the hands of another, is looked at again soon.
    constexpr long soon = 20;
    for (const Lease& lease : leases)
        if (!lease.is_live(now))
            return soon;
    // Commits wake us if there is shared memory to do it through; prepared transactions never do.
    constexpr long with_wake = 1000;
    constexpr long without_wake = 250;
    const long longest = pg::preloaded ? with_wake : without_wake;
    TimestampTz due = now + longest * 1000;
    for (const Lease& lease : leases)
        if (lease.is_live(now))
            due = Min(due, lease.locked_until);
    if (const auto first = next_due(consumer, now))
        due = Min(due, *first);
    return static_cast<long>((due - now) / 1000) + 1;
}

void take_older(Oldest& oldest, const Message& message)
{
    const TimestampTz time = DatumGetTimestampTz(message.values[col_occurred_at]);
    if (!oldest.found || time < oldest.occurred_at)
        oldest.occurred_at = time;
    oldest.found = true;
}

} // namespace

Oldest find_oldest_unsettled(Datum name)
{
    constexpr int64 few = 1000;
    Oldest oldest = {false, 0, true};
    const ConsumerState state = read_consumer(name);
    // Of those that were handed out the one with the least id is the oldest.
    if (const auto least = least_unsettled_id(state.consumer.id)) {
        const IdRange first[] = {{*least, *least + 1}};
        visit_messages(first, [&](const Message& message) {
            take_older(oldest, message);
            return false;
        });
    }
    Cursor cursor = state.progress.cursor;
    Oldest unwanted = {};
    const auto takes = [&](const Message& message) {
        if (!state.consumer.filter.takes(message)) {
            take_older(unwanted, message);
            return false;
        }
        take_older(oldest, message);
        return true;
    };
    const Page page = read_page(cursor, Filter{}, 1, few, takes);
    if (page.taken == 0 && !page.at_end && unwanted.found && !oldest.found)
        return {true, unwanted.occurred_at, false};
    return oldest;
}

void peek(Datum name, int max_rows, MessageReceiver& sink)
{
    UpcastingReceiver upcasting(sink);
    const ConsumerState state = read_consumer(name);
    Limited out(upcasting.meet(state.consumer), max_rows);
    const int32 consumer = state.consumer.id;
    const TimestampTz now = GetCurrentTimestamp();
    const pg::PallocVector<Lease> leases = open_leases(state.progress.open_tokens);
    for (const Lease& lease : leases)
        if (lease.has_expired(now) && !out.is_full())
            peek_at_batch(consumer, lease, out);
    if (!out.is_full())
        peek_at_retries(consumer,
                        due_retries(consumer, state.progress.open_tokens, now, out.left()), 1, out);
    for (const Lease& lease : leases)
        if (lease.is_unassigned && !out.is_full())
            peek_at_batch(consumer, lease, out);
    if (!out.is_full()) {
        Cursor cursor = state.progress.cursor;
        read_page(cursor, state.consumer.filter, out.left(), reading_budget,
                  [&](const Message& message) {
                      out.put(message, 1);
                      return true;
                  });
    }
    // What has failed, and what would wait behind it, nobody would get.
    (void)upcasting.complete();
}

Readiness is_ready(Datum name)
{
    constexpr long while_locked = 20;
    const ConsumerState state = read_consumer(name);
    const Consumer& consumer = state.consumer;
    const TimestampTz now = GetCurrentTimestamp();
    const pg::PallocVector<Lease> leases = open_leases(state.progress.open_tokens);
    if (consumer.paused)
        return {false, next_look(consumer.id, leases, now)};
    if (pg::is_consumer_locked(consumer.id))
        return {false, while_locked};
    const bool ready = has_waiting_batch(consumer, leases, now) ||
                       has_due_retries(state, leases, now) ||
                       (may_read_on(consumer, leases.view()) && has_news(state));
    return {ready, ready ? 0 : next_look(consumer.id, leases, now)};
}

} // namespace outbox

OUTBOX_SQL_FUNCTION(outbox_peek)
{
    return outbox::pg::entry([&] {
        using namespace outbox;
        const Datum name = checked_consumer_name(
            PG_ARGISNULL(0) ? std::nullopt : std::optional<Datum>(PG_GETARG_DATUM(0)));
        if (PG_ARGISNULL(1))
            ereport(ERROR,
                    (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("max_rows must not be NULL")));
        const int max_rows = batch_size_argument(PG_GETARG_DATUM(1), "max_rows");
        ResultSetReceiver table(fcinfo);
        pg::as_owner([&] { peek(name, max_rows, table); });
        return Datum{0};
    });
}

// Internal: for SQL that makes something claimable.
OUTBOX_SQL_FUNCTION(outbox_wake_relay)
{
    return outbox::pg::entry([&] {
        outbox::pg::wake_at_commit();
        outbox::pg::wake_relay_at_commit(outbox::pg::task_sinks);
        PG_RETURN_VOID();
    });
}
