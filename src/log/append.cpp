#include "log/append.hpp"

#include "extension/owner_spi.hpp"
#include "extension/relations.hpp"
#include "ipc/wakeup.hpp"
#include "log/partition_routing.hpp"
#include "pg/catalog_generation.hpp"
#include "pg/datum.hpp"
#include "pg/exceptions.hpp"
#include "pg/heap_insert.hpp"
#include "pg/injection_point.hpp"
#include "pg/sequence.hpp"
#include "stats/transaction_counters.hpp"

#include <cstring>

namespace outbox {

namespace {

// Stores the event in the slot as a virtual tuple, which refers to the event's values. `run_length`
// is the number of rows for the first row of a run, and 0 (stored as NULL) for the others.
void fill_slot(TupleTableSlot* slot, const Event& event, FullTransactionId xid, int64 id,
               TimestampTz occurred_at, int run_length)
{
    Datum* values = slot->tts_values;
    std::memset(slot->tts_isnull, 0, log_column_count * sizeof(bool));
    values[col_xid] = FullTransactionIdGetDatum(xid);
    values[col_id] = Int64GetDatum(id);
    values[col_occurred_at] = TimestampTzGetDatum(occurred_at);
    values[col_tenant_id] = Int64GetDatum(event.tenant_id);
    values[col_tracking_id] = UUIDPGetDatum(&event.tracking_id);
    values[col_event_version] = Int16GetDatum(event.event_version);
    values[col_aggregate_type] = event.aggregate_type;
    values[col_aggregate_id] = event.aggregate_id;
    values[col_event_type] = event.event_type;
    values[col_payload] = event.payload;
    values[col_metadata] = event.metadata;
    values[col_trace_id] = event.trace_id.value_or(Datum{0});
    slot->tts_isnull[col_trace_id] = !event.trace_id;
    values[col_run_length] = Int16GetDatum(static_cast<int16>(run_length));
    slot->tts_isnull[col_run_length] = run_length == 0;
    ExecStoreVirtualTuple(slot);
}

// Draws `count` ids and inserts the events as one run into heap and indexes, without the executor.
// The caller has checked DirectInsertCheck.
void append_directly(Relation partition, const Event* events, int count, TimestampTz occurred_at)
{
    // The xid is assigned before the first id is drawn: a claim reads the sequence and then the
    // next xid, and relies on finding every transaction that can own an id up to there.
    Assert(count <= max_events_per_append);
    const FullTransactionId xid = GetTopFullTransactionId();
    pg::injection_point("append");
    const int64 first_id = pg::draw_values(extension_relations().log_sequence, count);

    pg::TableWriter writer = pg::open_table_writer(partition, count);
    for (int i = 0; i < count; ++i)
        fill_slot(pg::clear_slot(writer, i), events[i], xid, first_id + i, occurred_at,
                  i == 0 ? count : 0);
    pg::insert_rows(writer, count);
    pg::close_table_writer(writer);
}

// Inserts through the executor: for a log to which users have added a trigger, a column or a
// policy. Column defaults set xid, id, occurred_at and run_length. Call inside as_owner().
void append_by_statement(const Event& event)
{
    static constinit Statement insert{
        "INSERT INTO @schema@.outbox_messages (tracking_id, tenant_id, event_version,"
        " aggregate_type, aggregate_id, event_type, payload, metadata, trace_id)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        event_parameter_types};
    const EventParameters parameters = parameters_of(event);
    insert.execute(parameters.values, parameters.nulls);
}

// Returns a Bloom filter with the types of the events.
EventTypeBloom event_types_of(const Event* events, int count)
{
    EventTypeBloom types;
    for (int i = 0; i < count; ++i)
        types.add(pg::to_view(events[i].event_type));
    return types;
}

// Counts the events in the transaction's statistics, consecutive ones of one type together. The
// caller has checked stats::is_enabled().
void count_enqueued_by_type(const Event* events, int count)
{
    for (int from = 0, upto; from < count; from = upto) {
        const stats::TypeSlotNumber type = stats::type_slot_of(events[from].event_type);
        for (upto = from + 1; upto < count && stats::type_slot_of(events[upto].event_type) == type;)
            ++upto;
        stats::count_enqueued(type, upto - from);
    }
}

} // namespace

void ensure_log_partition()
{
    close_insert_target(open_insert_target(&ExtensionRelations::log));
}

void append_to_log(const Event* events, int count)
{
    static constinit DirectInsertCheck direct_insert{pg::PartitionWatch::log, log_columns};
    const InsertTarget target = open_insert_target(&ExtensionRelations::log);
    if (direct_insert.is_allowed(target))
        append_directly(target.partition, events, count, target.now);
    else
        as_owner([&] {
            for (int i = 0; i < count; ++i)
                append_by_statement(events[i]);
        });
    close_insert_target(target);
    ipc::wake_for_types_at_commit(event_types_of(events, count));
    if (stats::is_enabled())
        count_enqueued_by_type(events, count);
}

} // namespace outbox

// The default of outbox_messages.id, so that a plain INSERT assigns the xid before the id, too, and
// wakes waiting consumers and the relay at commit.
OUTBOX_SQL_FUNCTION(outbox_next_id)
{
    return outbox::pg::sql_entry([&] {
        PreventCommandIfReadOnly("outbox_next_id()");
        (void)GetTopTransactionId();
        outbox::ipc::wake_all_at_commit();
        PG_RETURN_INT64(outbox::pg::draw_values(outbox::extension_relations().log_sequence, 1));
    });
}
