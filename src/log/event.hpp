// An event on its way from a caller's arguments into the log.
#pragma once

#include "pg/postgres.hpp"

#include <optional>

namespace outbox {

// What the caller gave, before anything is known to be right. Empty is NULL.
struct EventArguments {
    int array_index = -1; // the place in the array of outbox_enqueue_many(), for messages
    std::optional<Datum> aggregate_type;
    std::optional<Datum> aggregate_id;
    std::optional<Datum> event_type;
    std::optional<Datum> payload;
    std::optional<int64> event_version;
    std::optional<int64> tenant_id;
    std::optional<Datum> metadata;
    std::optional<Datum> trace_id;
    std::optional<TimestampTz> available_at;
    std::optional<Datum> dedup_key;

    // How a message names an argument: payload, or events[7].payload.
    const char* qualified_name(const char* argument) const;
};

// An event with nothing wrong and nothing missing.
struct Event {
    pg_uuid_t tracking_id;
    int64 tenant_id;
    int16 event_version;
    Datum aggregate_type; // text
    Datum aggregate_id;   // text
    Datum event_type;     // text
    Datum payload;        // jsonb, as it came: possibly compressed or out of line
    Datum metadata;       // jsonb, an object
    std::optional<Datum> trace_id;
    std::optional<Datum> dedup_key;
    std::optional<TimestampTz> available_at; // only if it lies in the future
};

// An event as the parameters of a statement: $1 to $9 are tracking_id, tenant_id, event_version,
// aggregate_type, aggregate_id, event_type, payload, metadata and trace_id. $10, a time, is left to
// the statement.
struct EventParameters {
    Datum values[10];
    char nulls[10];
};

inline constexpr Oid event_parameter_types[] = {UUIDOID, INT8OID,       INT2OID,  TEXTOID,
                                                TEXTOID, TEXTOID,       JSONBOID, JSONBOID,
                                                TEXTOID, TIMESTAMPTZOID};

EventParameters parameters_of(const Event& event);

// Checks every argument, fills in the defaults and gives the event its identity.
Event make_event(const EventArguments& arguments, TimestampTz now);

// The tenant that a call acts for, given its tenant_id argument.
int64 effective_tenant(const EventArguments& arguments);

// A text that has to be there, and not empty nor longer than names are.
Datum required_name(const EventArguments& arguments, const char* argument,
                    const std::optional<Datum>& value);

// Raises an error if it is larger than outbox.max_payload_size.
void check_value_size(const EventArguments& arguments, const char* argument, Datum value);

// jsonb that is an object, and an empty one where there is none.
Datum checked_json_object(const EventArguments& arguments, const char* argument,
                          const std::optional<Datum>& value);

// A UUIDv7, greater than every one that this backend has made before.
pg_uuid_t new_tracking_id(TimestampTz now);

} // namespace outbox
