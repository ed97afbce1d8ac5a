// An event as enqueue passes it to the log.
#pragma once

#include "pg/postgres.hpp"

#include <optional>

namespace outbox {

// An event with checked values and all defaults.
struct Event {
    pg_uuid_t tracking_id;
    int64 tenant_id;
    int16 event_version;
    Datum aggregate_type; // text
    Datum aggregate_id;   // text
    Datum event_type;     // text
    Datum payload;        // jsonb, possibly compressed or out of line
    Datum metadata;       // jsonb, an object
    std::optional<Datum> trace_id;
    std::optional<Datum> dedup_key;
    std::optional<TimestampTz> available_at; // set only if it is in the future
};

// An event as SPI parameters: $1 to $9 are tracking_id, tenant_id, event_version, aggregate_type,
// aggregate_id, event_type, payload, metadata and trace_id. $10, a timestamptz, is NULL until the
// caller sets it.
struct EventParameters {
    Datum values[10];
    char nulls[10];
};

// The types of these parameters.
inline constexpr Oid event_parameter_types[] = {UUIDOID, INT8OID,       INT2OID,  TEXTOID,
                                                TEXTOID, TEXTOID,       JSONBOID, JSONBOID,
                                                TEXTOID, TIMESTAMPTZOID};

// Returns the event's values as SPI parameters. They point into the event, which must outlive them.
EventParameters parameters_of(const Event& event);

// Returns a UUIDv7 of this time that is greater than all that this backend has returned before.
// Throws outbox::Error if pg_strong_random() fails.
pg_uuid_t new_tracking_id(TimestampTz now);

} // namespace outbox
