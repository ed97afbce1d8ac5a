// Which consumers still need a partition of the log or of the archive; and moving cursors past
// events that their filters exclude.
#include "consumer/batch_store.hpp"
#include "consumer/read_page.hpp"
#include "extension/fencing_token.hpp"
#include "extension/locks.hpp"
#include "extension/owner_spi.hpp"
#include "ipc/wakeup.hpp"
#include "pg/exceptions.hpp"
#include "pg/injection_point.hpp"

namespace outbox {

namespace {

// Returns whether an unsettled batch of the consumer has a row in the partition. Retries do not
// count: they are copies.
bool has_unsettled(OpenLog& partition, Snapshot snapshot, int32 consumer)
{
    UnsettledBatches batches(consumer);
    while (const auto batch = batches.next()) {
        IdScan scan(partition, snapshot, batch->ids);
        const bool found = scan.next() != nullptr;
        scan.close();
        if (found)
            return true;
    }
    return false;
}

// Returns why the consumer needs the partition; nullptr if it does not. The archive swap calls this
// with the log locked against writers, so every row is visible or was rolled back. Claims may go
// on. Unread rows are checked first: a row that a claim reads between the two checks is found
// unread or unsettled.
const char* reason_to_keep(Datum consumer, OpenLog& partition, Snapshot snapshot)
{
    const ConsumerState state = read_consumer(consumer);
    if (has_unread_rows(partition, snapshot, state.progress.cursor))
        return state.consumer.paused ? "paused, and has yet to read it" : "has yet to read it";
    pg::injection_point("unread");
    if (has_unsettled(partition, snapshot, state.consumer.id))
        return "has not settled all of it";
    return nullptr;
}

// Adds a row with name and reason for each consumer that still needs the partition. Locks the
// partition as open_partition_for_reading() does.
void find_partition_readers(Oid partition, const ReturnSetInfo& result)
{
    static constinit Statement list{"SELECT name FROM _outbox.consumers ORDER BY 1"};
    const uint64 count = list.execute_with_latest_snapshot(nullptr);
    pg::PallocVector<ResultRow> consumers;
    for (uint64 i = 0; i < count; ++i)
        consumers.push(ResultRow(i));

    OpenLog log = open_partition_for_reading(partition);
    const Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
    for (const ResultRow& consumer : consumers)
        if (const char* reason = reason_to_keep(consumer.get(1), log, snapshot)) {
            Datum values[] = {consumer.get(1), CStringGetTextDatum(reason)};
            bool nulls[] = {false, false};
            tuplestore_putvalues(result.setResult, result.setDesc, values, nulls);
        }
    UnregisterSnapshot(snapshot);
    close_log(log);
}

// Moves the cursor of a consumer past events that its filter excludes. Commits of such events do
// not wake it, so its cursor would hold back the archive. Returns true if the cursor moved, and
// then keeps the consumer's lock to the end of the transaction and wakes the relay at commit; false
// if another session holds the consumer's lock, or the next event matches.
bool skip_unwanted_events(Datum name)
{
    const int32 consumer = read_consumer(name).consumer.id;
    if (!lock_consumer(consumer, 0))
        return false;
    const ConsumerState state = read_consumer(name);
    Cursor cursor = state.progress.cursor;
    const PageResult page = state.consumer.id == consumer && !state.consumer.paused
                                ? read_page(cursor, state.consumer.filter, 1, max_rows_examined,
                                            [](const Message&) { return true; })
                                : PageResult{};
    if (page.accepted > 0 || page.examined == 0) {
        unlock_consumer(consumer);
        return false;
    }
    Batch batch = {};
    batch.token = batch.root_token = draw_tokens(1);
    add_cursor_row(consumer, batch, {cursor, state.progress.open_tokens});
    ipc::wake_relay_at_commit(ipc::reason_sinks_changed);
    return true;
}

} // namespace

} // namespace outbox

// Internal: the consumers that still need a partition, with the reason.
OUTBOX_SQL_FUNCTION(outbox_partition_readers)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        InitMaterializedSRF(fcinfo, 0);
        const auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
        const Oid partition = PG_GETARG_OID(0);
        as_owner([&] { find_partition_readers(partition, *result); });
        return Datum{0};
    });
}

// Internal: skip_unwanted_events() as the owner of the log.
OUTBOX_SQL_FUNCTION(outbox_skip_unwanted_events)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        const Datum name = PG_GETARG_DATUM(0);
        bool moved = false;
        as_owner([&] { moved = skip_unwanted_events(name); });
        PG_RETURN_BOOL(moved);
    });
}
