// Appends events to the log, outbox_messages. Rows are never updated, and deleted only to move them
// out of the default partition. Their ids are drawn after the xid of their transaction is assigned.
#pragma once

#include "log/event.hpp"
#include "pg/heap_insert.hpp"

namespace outbox {

// The columns of a message in the order of the install script: in the log, and in tables with
// copies of its rows.
enum Column {
    col_xid,
    col_id,
    col_occurred_at,
    col_tenant_id,
    col_tracking_id,
    col_event_version,
    col_aggregate_type,
    col_aggregate_id,
    col_event_type,
    col_payload,
    col_metadata,
    col_trace_id,
    column_count
};

// The last column of the log, which copies lack. A run is the rows of one append, with one xid and
// consecutive ids. Its first row has the length of the run here, the others have NULL.
inline constexpr int col_run_length = column_count;
inline constexpr int log_column_count = column_count + 1;

// Names and types of the log's columns, to check the table against.
inline constexpr pg::ColumnSpec log_columns[log_column_count] = {
    {"xid", XID8OID},
    {"id", INT8OID},
    {"occurred_at", TIMESTAMPTZOID},
    {"tenant_id", INT8OID},
    {"tracking_id", UUIDOID},
    {"event_version", INT2OID},
    {"aggregate_type", TEXTOID},
    {"aggregate_id", TEXTOID},
    {"event_type", TEXTOID},
    {"payload", JSONBOID},
    {"metadata", JSONBOID},
    {"trace_id", TEXTOID, true},
    {"run_length", INT2OID, true},
};

// Creates partitions of the log if none covers the present time, with the locks and errors of
// open_insert_target(). Call this before events are tried one by one, so that a missing partition
// is not taken for the fault of an event.
void ensure_log_partition();

// Appends up to max_events_per_append events in array order, in the caller's transaction: creates a
// missing partition, draws ids, holds RowExclusiveLock on the log and a partition until the
// transaction ends, counts statistics, and wakes waiting consumers and the relay at commit.
void append_to_log(const Event* events, int count);

// Maximum events per call of append_to_log(), and thus the maximum length of a run. Larger appends
// gain little, and a scan for late commits starts this many ids early.
inline constexpr int max_events_per_append = 256;

} // namespace outbox
