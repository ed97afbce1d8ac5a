// The log: append-only, in the order of ids drawn after the transaction's xid.
#pragma once

#include "log/event.hpp"
#include "pg/heap_insert.hpp"

namespace outbox {

// The columns of an event, in the log and in copies of its rows, in the order of the install
// script.
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

// Behind them, in the log alone: how many events, from this one on, were appended together, with
// ids in a row. NULL if it is not the first of them.
inline constexpr int col_run_length = column_count;
inline constexpr int log_column_count = column_count + 1;

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

// Makes partitions if there is none for now. If that fails, it is no event's fault.
void ensure_log_partition();

// Appends the events, in their order, in the caller's transaction.
void append_to_log(const Event* events, int count);

// How many events are worth appending at once: no run is longer.
inline constexpr int max_events_per_append = 256;

} // namespace outbox
