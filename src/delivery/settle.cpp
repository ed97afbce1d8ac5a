#include "delivery/settle.hpp"

#include "delivery/deliver_batch.hpp"
#include "delivery/locked_batch.hpp"
#include "delivery/retry_queue.hpp"
#include "extension/owner_spi.hpp"
#include "ipc/wakeup.hpp"
#include "pg/datum.hpp"

namespace outbox {

namespace {

// Adds settled messages to the statistics; their rows must still be there. A batch that is settled
// as a whole is counted by the summary that its claim left in shared memory. Otherwise, or if the
// ring has dropped the summary, the messages are read again.
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
        ipc::wake_all_at_commit(); // the consumer partition may get its next batch
    return count;
}

void ack_whole_batches(std::span<const int64> tokens)
{
    const TimestampTz now = GetCurrentTimestamp();
    for (const int64 token : tokens) {
        lock_held_lease(token);
        settle_lease(token, now);
    }
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
