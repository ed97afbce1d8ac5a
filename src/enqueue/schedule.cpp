#include "enqueue/schedule.hpp"

#include "extension/guc.hpp"
#include "extension/owner_spi.hpp"
#include "extension/tenant.hpp"
#include "ipc/wakeup.hpp"
#include "log/append.hpp"
#include "pg/exceptions.hpp"
#include "pg/subtransaction.hpp"

extern "C" {
#include "commands/trigger.h"
#include "utils/datum.h"
}

#include <span>

namespace outbox {

namespace {

// Which refused events to try again: those whose try_again_at has passed, or all.
enum class RefusedEvents { due, all };

// Returns a column of a row of SPI_tuptable, counted from 1.
Datum selected_column(HeapTuple row, int number, bool* isnull)
{
    return SPI_getbinval(row, SPI_tuptable->tupdesc, number, isnull);
}

// Returns a column that is never NULL, counted from 1.
Datum selected_column(HeapTuple row, int number)
{
    bool isnull;
    return selected_column(row, number, &isnull);
}

// Returns the event of a row of SPI_tuptable with the columns in the order in which MOVE selects
// them. Its values refer to the row.
Event read_event(HeapTuple row)
{
    Event event;
    event.tracking_id = *DatumGetUUIDP(selected_column(row, 1));
    event.tenant_id = DatumGetInt64(selected_column(row, 2));
    event.event_version = DatumGetInt16(selected_column(row, 3));
    event.aggregate_type = selected_column(row, 4);
    event.aggregate_id = selected_column(row, 5);
    event.event_type = selected_column(row, 6);
    event.payload = selected_column(row, 7);
    event.metadata = selected_column(row, 8);
    bool no_trace;
    const Datum trace_id = selected_column(row, 9, &no_trace);
    if (!no_trace)
        event.trace_id = trace_id;
    return event;
}

// Appends the first `count` rows of SPI_tuptable, selected by MOVE, to the log.
void append_selected_events(int count)
{
    // Nested SPI calls replace SPI_tuptable.
    HeapTuple* rows = SPI_tuptable->vals;
    auto* events = static_cast<Event*>(palloc(sizeof(Event) * count));
    for (int i = 0; i < count; ++i)
        events[i] = read_event(rows[i]);
    for (int done = 0; done < count; done += max_events_per_append)
        append_to_log(events + done, Min(max_events_per_append, count - done));
    pfree(events);
}

// Deletes rows of _outbox.scheduled and returns them. Concurrent sessions skip each other's rows.
// Sorting by tracking_id keeps events of one producer with the same due time in order.
#define MOVE(which)                                                                                \
    "WITH due AS (DELETE FROM _outbox.scheduled WHERE tracking_id = ANY (ARRAY("                   \
    " SELECT tracking_id FROM _outbox.scheduled WHERE " which                                      \
    " FOR UPDATE SKIP LOCKED)) RETURNING *)"                                                       \
    " SELECT tracking_id, tenant_id, event_version, aggregate_type, aggregate_id,"                 \
    " event_type, payload, metadata, trace_id FROM due ORDER BY available_at, tracking_id"

// Refused events are in another partial index, so they are not read here, whatever their number.
#define FIRST_DUE                                                                                  \
    "available_at <= $1 AND try_again_at IS NULL ORDER BY available_at, tracking_id LIMIT $2"

// Moves up to `limit` due events, without refused ones, from _outbox.scheduled to the log. Returns
// the number moved. An error of one event undoes all, so the caller has a subtransaction.
int move_due_in_bulk(TimestampTz now, int limit)
{
    int moved = 0;
    as_owner([&] {
        static constinit Statement move{MOVE(FIRST_DUE), {TIMESTAMPTZOID, INT4OID}};
        const Datum values[] = {TimestampTzGetDatum(now), Int32GetDatum(limit)};
        moved = static_cast<int>(move.execute(values));
        append_selected_events(moved);
    });
    return moved;
}

// ---- events that the log refuses

// Copies column 1, the tracking_id, of the first `count` rows of SPI_tuptable to the memory context
// `caller`.
std::span<Datum> selected_ids(uint64 count, MemoryContext caller)
{
    const MemoryContext spi = MemoryContextSwitchTo(caller);
    auto* ids = static_cast<Datum*>(palloc(sizeof(Datum) * Max(count, 1)));
    for (uint64 i = 0; i < count; ++i)
        ids[i] = datumCopy(selected_column(SPI_tuptable->vals[i], 1), false, UUID_LEN);
    MemoryContextSwitchTo(spi);
    return {ids, count};
}

// Returns the tracking_ids of up to `limit` due events, without refused ones, in the current memory
// context. Includes events that another session has locked.
std::span<Datum> list_due(TimestampTz now, int limit)
{
    const MemoryContext caller = CurrentMemoryContext;
    std::span<Datum> ids;
    as_owner([&] {
        static constinit Statement list{
            "SELECT tracking_id FROM _outbox.scheduled WHERE " FIRST_DUE,
            {TIMESTAMPTZOID, INT4OID}};
        const Datum values[] = {TimestampTzGetDatum(now), Int32GetDatum(limit)};
        ids = selected_ids(list.execute(values), caller);
    });
    return ids;
}

// Returns the tracking_ids of up to `limit` refused events by due time, in the current memory
// context. Those whose try_again_at has passed are chosen first. Otherwise events that are never
// accepted, but have the earliest due times, could fill `limit` every time.
std::span<Datum> list_refused(TimestampTz now, int limit, RefusedEvents which)
{
    const MemoryContext caller = CurrentMemoryContext;
    std::span<Datum> ids;
    as_owner([&] {
        static constinit Statement list{
            "SELECT tracking_id FROM ("
            " SELECT tracking_id, available_at FROM _outbox.scheduled"
            " WHERE try_again_at <= $1 ORDER BY try_again_at > $2, available_at, tracking_id"
            " LIMIT $3) chosen ORDER BY available_at, tracking_id",
            {TIMESTAMPTZOID, TIMESTAMPTZOID, INT4OID}};
        const TimestampTz until = which == RefusedEvents::all ? DT_NOEND : now;
        const Datum values[] = {TimestampTzGetDatum(until), TimestampTzGetDatum(now),
                                Int32GetDatum(limit)};
        ids = selected_ids(list.execute(values), caller);
    });
    return ids;
}

// Moves these events, due or not, from _outbox.scheduled to the log. Skips rows that another
// session has locked. Returns the number moved.
int move_by_id(std::span<Datum> ids)
{
    int moved = 0;
    as_owner([&] {
        static constinit Statement move{MOVE("tracking_id = ANY ($1)"), {UUIDARRAYOID}};
        const Datum values[] = {PointerGetDatum(construct_array(
            ids.data(), static_cast<int>(ids.size()), UUIDOID, UUID_LEN, false, TYPALIGN_CHAR))};
        moved = static_cast<int>(move.execute(values));
        append_selected_events(moved);
    });
    return moved;
}

// Stores `reason` in the event's row of _outbox.scheduled, and wakes the relay at commit. Sets
// try_again_at to 1 minute * 2^refusals from now, at most 24 hours; 2^11 minutes exceed that.
// available_at stays, and with it the event's order among the others.
void record_refusal(Datum tracking_id, TimestampTz now, const char* reason)
{
    as_owner([&] {
        static constinit Statement update{
            "UPDATE _outbox.scheduled SET refusals = refusals + 1, last_error = $3,"
            " try_again_at = $2 + least(interval '1 minute' * (1 << least(refusals, 11)),"
            " interval '24 hours') WHERE tracking_id = $1",
            {UUIDOID, TIMESTAMPTZOID, TEXTOID}};
        const Datum values[] = {tracking_id, TimestampTzGetDatum(now), CStringGetTextDatum(reason)};
        update.execute(values);
    });
    ipc::wake_relay_at_commit(ipc::reason_schedule_refused);
}

// Returns whether the event caused the error: false for an error of the server or the transaction.
// Then no refusal is recorded, and all events are tried again.
bool is_event_fault(const ErrorData& error)
{
    switch (ERRCODE_TO_CATEGORY(error.sqlerrcode)) {
    case ERRCODE_CONNECTION_EXCEPTION:
    case ERRCODE_INVALID_TRANSACTION_STATE:
    case ERRCODE_TRANSACTION_ROLLBACK:
    case ERRCODE_INSUFFICIENT_RESOURCES:
    case ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE:
    case ERRCODE_OPERATOR_INTERVENTION:
    case ERRCODE_SYSTEM_ERROR:
    case ERRCODE_INTERNAL_ERROR:
        return false;
    default:
        return true;
    }
}

// Moves the events to the log in a subtransaction. If one of them is at fault, tries each half,
// down to the single event, whose refusal is recorded. Raises other errors again.
ReleaseResult bisect_and_move(TimestampTz now, std::span<Datum> ids)
{
    if (ids.empty())
        return {};
    int moved = 0;
    ErrorData* error = pg::in_subtransaction([&] { moved = move_by_id(ids); });
    if (error == nullptr)
        return {moved, 0};
    if (!is_event_fault(*error))
        ReThrowError(error);
    if (ids.size() == 1) {
        record_refusal(ids[0], now, error->message);
        return {0, 1};
    }
    FreeErrorData(error);
    const std::size_t half = ids.size() / 2;
    const ReleaseResult first = bisect_and_move(now, ids.first(half));
    return first + bisect_and_move(now, ids.subspan(half));
}

// Moves the events to the log, and records a refusal of each that the log refuses. Creates missing
// partitions first: an error about the log must not count against each event.
ReleaseResult move_or_refuse(TimestampTz now, std::span<Datum> ids)
{
    if (!ids.empty())
        ensure_log_partition();
    return bisect_and_move(now, ids);
}

// Moves up to `limit` due events, without refused ones, to the log: all in one subtransaction, or
// by move_or_refuse() if one of them is at fault. Raises other errors again.
ReleaseResult move_due_events(TimestampTz now, int limit)
{
    int moved = 0;
    ErrorData* error = pg::in_subtransaction([&] { moved = move_due_in_bulk(now, limit); });
    if (error == nullptr)
        return {moved, 0};
    if (!is_event_fault(*error))
        ReThrowError(error);
    FreeErrorData(error);
    return move_or_refuse(now, list_due(now, limit));
}

// Does SET CONSTRAINTS ALL IMMEDIATE: a deferred trigger that fails at commit would roll back every
// event of the transaction. Only in the relay: outbox_release_due() runs in the caller's
// transaction and leaves its constraints alone.
void set_constraints_immediate()
{
    AfterTriggerSetState(makeNode(ConstraintsSetStmt));
}

// Raises a WARNING if the log has refused events. Returns its argument.
ReleaseResult warn_of_refused(const ReleaseResult& released)
{
    if (released.refused > 0)
        ereport(WARNING,
                (errmsg("outbox: scheduled events that the log refused: %d", released.refused),
                 errhint("last_error in outbox_scheduled says why. They are tried again, less and"
                         " less often; outbox_release_due() tries them at once, outbox_cancel()"
                         " takes them back.")));
    return released;
}

// Moves up to `limit` refused or due events to the log. Returns the number moved. Tries refused
// events first, whatever their try_again_at, because they have been due for longer.
int release_in_callers_transaction(int limit)
{
    const TimestampTz now = GetCurrentTimestamp();
    const ReleaseResult retried = move_or_refuse(now, list_refused(now, limit, RefusedEvents::all));
    return warn_of_refused(retried + move_due_events(now, limit - retried.moved)).moved;
}

// Runs a query for one time and returns the milliseconds until then: 0 if it has passed,
// PG_INT64_MAX for NULL. Call inside as_owner().
int64 milliseconds_until_first(Statement& find)
{
    find.execute_with_latest_snapshot(nullptr);
    const auto first = ResultRow(0).find(1);
    if (!first)
        return PG_INT64_MAX;
    // Rounded up, so that the event is due when the relay wakes.
    return Max((DatumGetTimestampTz(*first) - GetCurrentTimestamp() + 999) / 1000, 0);
}

// Deletes an event from _outbox.scheduled that is not yet due, or was refused. Returns false, and
// deletes nothing, if there is none or it belongs to another tenant than the session's.
bool cancel_scheduled(const pg_uuid_t& tracking_id)
{
    const auto tenant = settings::tenant_id();
    uint64 cancelled = 0;
    as_owner([&] {
        // A due event counts as being in the log, even if it was not moved yet, unless the log has
        // refused it.
        static constinit Statement remove{"DELETE FROM _outbox.scheduled WHERE tracking_id = $1"
                                          " AND (available_at > $2 OR try_again_at IS NOT NULL)"
                                          " AND ($3 IS NULL OR tenant_id = $3)",
                                          {UUIDOID, TIMESTAMPTZOID, INT8OID}};
        const Datum values[] = {UUIDPGetDatum(&tracking_id),
                                TimestampTzGetDatum(GetCurrentTimestamp()),
                                Int64GetDatum(tenant.value_or(0))};
        cancelled = remove.execute(values, tenant ? nullptr : "  n");
    });
    return cancelled == 1;
}

} // namespace

void schedule_event(const Event& event)
{
    as_owner([&] {
        static constinit Statement insert{
            "INSERT INTO _outbox.scheduled (tracking_id, tenant_id, event_version,"
            " aggregate_type, aggregate_id, event_type, payload, metadata, trace_id, available_at)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            event_parameter_types};
        EventParameters parameters = parameters_of(event);
        parameters.values[9] = TimestampTzGetDatum(*event.available_at);
        parameters.nulls[9] = ' ';
        insert.execute(parameters.values, parameters.nulls);
    });
    ipc::wake_relay_at_commit(ipc::reason_event_scheduled);
}

ReleaseResult release_due_events(int limit)
{
    set_constraints_immediate();
    return warn_of_refused(move_due_events(GetCurrentTimestamp(), limit));
}

ReleaseResult release_refused_events(int limit)
{
    set_constraints_immediate();
    const TimestampTz now = GetCurrentTimestamp();
    return warn_of_refused(move_or_refuse(now, list_refused(now, limit, RefusedEvents::due)));
}

int64 milliseconds_to_next_due()
{
    static constinit Statement find{
        "SELECT min(available_at) FROM _outbox.scheduled WHERE try_again_at IS NULL"};
    return milliseconds_until_first(find);
}

int64 milliseconds_to_next_refused()
{
    static constinit Statement find{
        "SELECT min(try_again_at) FROM _outbox.scheduled WHERE try_again_at IS NOT NULL"};
    return milliseconds_until_first(find);
}

} // namespace outbox

OUTBOX_SQL_FUNCTION(outbox_release_due)
{
    return outbox::pg::sql_entry([&] {
        PreventCommandIfReadOnly("outbox_release_due()");
        outbox::require_no_tenant("outbox_release_due()");
        constexpr int max_limit = 100000;
        const int limit = PG_ARGISNULL(0) ? 1000 : PG_GETARG_INT32(0);
        if (limit < 1 || limit > max_limit)
            ereport(ERROR,
                    (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                     errmsg("max_events must be between 1 and %d, not %d", max_limit, limit)));
        PG_RETURN_INT32(outbox::release_in_callers_transaction(limit));
    });
}

OUTBOX_SQL_FUNCTION(outbox_cancel)
{
    return outbox::pg::sql_entry([&] {
        PreventCommandIfReadOnly("outbox_cancel()");
        if (PG_ARGISNULL(0))
            ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
                            errmsg("tracking_id must not be NULL")));
        PG_RETURN_BOOL(outbox::cancel_scheduled(*PG_GETARG_UUID_P(0)));
    });
}
