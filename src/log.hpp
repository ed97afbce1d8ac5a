// The log: append-only, in the order of ids drawn after the transaction's xid.
#pragma once

#include "event.hpp"
#include "pg/table.hpp"

namespace outbox {

// The log's columns in the order of the install script.
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

inline constexpr pg::ColumnShape log_columns[column_count] = {
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
    {"trace_id", TEXTOID},
};

// Appends the events, in their order, in the caller's transaction.
void append_to_log(const Event* events, int count);

// How many events are worth appending at once.
inline constexpr int append_chunk = 256;

} // namespace outbox
