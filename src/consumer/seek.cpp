// Places a new consumer's cursor, moves a consumer's cursor, and drops consumers.
#include "consumer/batch_store.hpp"
#include "consumer/read_page.hpp"
#include "extension/fencing_token.hpp"
#include "extension/locks.hpp"
#include "extension/owner_spi.hpp"
#include "extension/relations.hpp"
#include "ipc/wakeup.hpp"
#include "log/partition_children.hpp"
#include "pg/datum.hpp"
#include "pg/exceptions.hpp"

extern "C" {
#include "utils/datum.h"
}

namespace outbox {

namespace {

// Returns the least id with occurred_at at or after this time, in the log or the archive. The locks
// of the view keep partitions from being archived meanwhile.
std::optional<Id> find_first_id_since(const LogView& view, TimestampTz time)
{
    const Relation archive = table_open(extension_relations().archive, AccessShareLock);
    refresh_partition_descriptor(view.log.parent);
    refresh_partition_descriptor(archive);
    table_close(archive, NoLock);
    static constinit Statement find{
        "SELECT least((SELECT min(id) FROM @schema@.outbox_messages WHERE occurred_at >= $1),"
        " (SELECT min(id) FROM @schema@.outbox_messages_archive WHERE occurred_at >= $1))",
        {TIMESTAMPTZOID}};
    const Datum values[] = {TimestampTzGetDatum(time)};
    find.execute_with_latest_snapshot(values);
    const auto id = ResultRow(0).find(1);
    return id ? std::optional<Id>(DatumGetInt64(*id)) : std::nullopt;
}

// Returns a cursor that has passed everything that entered the log before this time, except rows of
// running transactions, which are not visible yet; -infinity gives an empty cursor. `before` is the
// position that the consumer has passed. AccessShareLocks on log and archive stay.
Cursor cursor_at_time(TimestampTz time, const Position& before)
{
    Cursor cursor;
    if (time == DT_NOBEGIN) {
        // The lock keeps archived partitions from being dropped before this cursor is committed.
        LockRelationOid(extension_relations().archive, AccessShareLock);
        return cursor;
    }
    LogView view = open_log_view(PG_INT64_MAX);
    cursor.passed = before;
    set_target(cursor, view.log_snapshot);
    pass_target(cursor);
    if (time != DT_NOEND)
        if (const auto first = find_first_id_since(view, time))
            cursor.passed.seq = Min(cursor.passed.seq, *first - 1);
    close_log_view(view);
    return cursor;
}

// Inserts a newest batch with this cursor and no open batches, and wakes waiting consumers and the
// relay at commit. Returns its token. The caller holds the consumer's lock, or has just created the
// consumer.
int64 store_cursor(int32 consumer, const Cursor& cursor)
{
    Batch batch = {};
    batch.token = batch.root_token = draw_tokens(1);
    add_cursor_row(consumer, batch, {cursor, {}});
    ipc::wake_all_at_commit();
    ipc::wake_relay_at_commit(ipc::reason_sinks_changed);
    return batch.token;
}

// Marks those of the leases that are open as superseded by the batch `successor`. Waits for
// sessions that have locked their rows.
void supersede_leases(std::span<const int64> tokens, int64 successor)
{
    static constinit Statement end{
        "UPDATE _outbox.leases SET superseded_by = $2 WHERE token = ANY ($1)"
        " AND acked_at IS NULL AND superseded_by IS NULL",
        {INT8ARRAYOID, INT8OID}};
    const Datum values[] = {pg::to_bigint_array(tokens), Int64GetDatum(successor)};
    end.execute_with_latest_snapshot(values);
}

// Returns whether _outbox.retries has a row of the consumer, under a new snapshot.
bool has_retries(int32 consumer)
{
    static constinit Statement find{"SELECT FROM _outbox.retries WHERE consumer_id = $1 LIMIT 1",
                                    {INT4OID}};
    const Datum values[] = {Int32GetDatum(consumer)};
    return find.execute_with_latest_snapshot(values) > 0;
}

// Deletes all rows of the consumer from _outbox.retries, blocked messages included.
void delete_retries(int32 consumer)
{
    static constinit Statement remove{"DELETE FROM _outbox.retries WHERE consumer_id = $1",
                                      {INT4OID}};
    const Datum values[] = {Int32GetDatum(consumer)};
    remove.execute_with_latest_snapshot(values);
}

// Takes the consumer's lock until the end of the transaction, and reads the consumer behind it.
// Raises undefined_object like read_consumer().
ConsumerState lock_and_read_consumer(Datum name)
{
    for (;;) {
        const int32 consumer = read_consumer(name).consumer.id;
        lock_consumer(consumer);
        const ConsumerState state = read_consumer(name);
        if (state.consumer.id == consumer)
            return state;
        unlock_consumer(consumer); // was dropped and created again
    }
}

// Moves the consumer's cursor to this time, under the consumer's lock. Supersedes open leases and
// deletes retries, so that the consumer gets the messages behind the cursor and no others. Wakes
// waiting consumers and the relay at commit.
void seek_consumer(Datum name, TimestampTz time)
{
    const ConsumerState state = lock_and_read_consumer(name);
    const int32 consumer = state.consumer.id;
    const int64 token = store_cursor(consumer, cursor_at_time(time, state.progress.cursor.passed));
    supersede_leases(state.progress.open_tokens, token);
    delete_retries(consumer);
}

// Returns whether _outbox.dead_letters has a row of the consumer, under a new snapshot.
bool has_dead_letters(int32 consumer)
{
    static constinit Statement find{
        "SELECT FROM _outbox.dead_letters WHERE consumer_id = $1 LIMIT 1", {INT4OID}};
    const Datum values[] = {Int32GetDatum(consumer)};
    return find.execute_with_latest_snapshot(values) > 0;
}

// Deletes the consumer and all that belongs to it: leases, batches, retries, dead letters, sink and
// tenants' turns. Takes the consumer's lock, and wakes the relay at commit. Raises
// dependent_objects_still_exist if it has dead letters, unless `with_dead_letters`.
void drop_consumer(Datum name, bool with_dead_letters)
{
    static constinit Statement remove_leases{"DELETE FROM _outbox.leases WHERE consumer_id = $1",
                                             {INT4OID}};
    const int32 consumer = lock_and_read_consumer(name).consumer.id;
    const Datum values[] = {Int32GetDatum(consumer)};
    // Waits for transactions that are settling messages: they may insert dead letters.
    remove_leases.execute_with_latest_snapshot(values);
    if (!with_dead_letters && has_dead_letters(consumer))
        ereport(ERROR, (errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
                        errmsg("the consumer still has dead letters"),
                        errhint("Redrive or discard them, or drop the consumer with "
                                "discard_dead_letters => true.")));
    static constinit Statement removals[] = {
        Statement{"DELETE FROM _outbox.batches WHERE consumer_id = $1", {INT4OID}},
        Statement{"DELETE FROM _outbox.dead_letters WHERE consumer_id = $1", {INT4OID}},
        Statement{"DELETE FROM _outbox.sinks WHERE consumer_id = $1", {INT4OID}},
        Statement{"DELETE FROM _outbox.tenant_turns WHERE consumer_id = $1", {INT4OID}},
        Statement{"DELETE FROM _outbox.consumers WHERE consumer_id = $1", {INT4OID}},
    };
    for (Statement& removal : removals)
        removal.execute_with_latest_snapshot(values);
    delete_retries(consumer);
    ipc::wake_relay_at_commit(ipc::reason_sinks_changed);
}

} // namespace

} // namespace outbox

// Internal: takes the consumer's lock, which excludes claims, until the end of the transaction.
// Returns whether the consumer has open batches or retries.
OUTBOX_SQL_FUNCTION(outbox_lock_consumer)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        const Datum name = PG_GETARG_DATUM(0);
        bool busy = false;
        as_owner([&] {
            const ConsumerState state = lock_and_read_consumer(name);
            busy =
                !open_leases(state.progress.open_tokens).empty() || has_retries(state.consumer.id);
        });
        PG_RETURN_BOOL(busy);
    });
}

// Internal: returns the consumer's newest row of _outbox.batches under a new snapshot, also in a
// transaction with an older one. Raises undefined_object if there is none.
OUTBOX_SQL_FUNCTION(outbox_newest_batch)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        const Datum consumer[] = {PG_GETARG_DATUM(0)};
        const MemoryContext caller = CurrentMemoryContext;
        Datum newest = 0;
        as_owner([&] {
            static constinit Statement find{"SELECT b FROM _outbox.batches b WHERE consumer_id = $1"
                                            " ORDER BY token DESC LIMIT 1",
                                            {INT4OID}};
            if (find.execute_with_latest_snapshot(consumer) != 1)
                ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
                                errmsg("consumer %d does not exist", DatumGetInt32(consumer[0]))));
            const MemoryContext inner = MemoryContextSwitchTo(caller);
            newest = datumCopy(ResultRow(0).get(1), false, -1);
            MemoryContextSwitchTo(inner);
        });
        PG_RETURN_DATUM(newest);
    });
}

// Internal: inserts the first cursor of a new consumer, at this time, and wakes the relay at
// commit.
OUTBOX_SQL_FUNCTION(outbox_place_cursor)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        const int32 consumer = PG_GETARG_INT32(0);
        const TimestampTz time = PG_GETARG_TIMESTAMPTZ(1);
        as_owner([&] { store_cursor(consumer, cursor_at_time(time, {})); });
        PG_RETURN_VOID();
    });
}

OUTBOX_SQL_FUNCTION(outbox_seek)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        PreventCommandIfReadOnly("outbox_seek()");
        const Datum name = checked_consumer_name(
            PG_ARGISNULL(0) ? std::nullopt : std::optional<Datum>(PG_GETARG_DATUM(0)));
        if (PG_ARGISNULL(1))
            ereport(ERROR,
                    (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("to_time must not be NULL")));
        const TimestampTz time = PG_GETARG_TIMESTAMPTZ(1);
        as_owner([&] { seek_consumer(name, time); });
        PG_RETURN_VOID();
    });
}

OUTBOX_SQL_FUNCTION(outbox_drop_consumer)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        PreventCommandIfReadOnly("outbox_drop_consumer()");
        const Datum name = checked_consumer_name(
            PG_ARGISNULL(0) ? std::nullopt : std::optional<Datum>(PG_GETARG_DATUM(0)));
        const bool with_dead_letters = !PG_ARGISNULL(1) && PG_GETARG_BOOL(1);
        as_owner([&] { drop_consumer(name, with_dead_letters); });
        PG_RETURN_VOID();
    });
}
