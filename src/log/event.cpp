#include "log/event.hpp"

#include "core/limits.hpp"
#include "core/uuid.hpp"
#include "extension/guc.hpp"
#include "pg/exceptions.hpp"

extern "C" {
#include "access/detoast.h"
}

#include <cstring>

namespace outbox {

namespace {

// jsonb '{}', as the server lays it out.
struct EmptyObject {
    alignas(int32) char header[VARHDRSZ];
    JsonbContainer container;
};

Datum empty_object()
{
    static EmptyObject object;
    SET_VARSIZE(&object, sizeof(EmptyObject));
    object.container.header = JB_FOBJECT;
    return PointerGetDatum(&object);
}

// The size before compression, without fetching a value that lies out of line.
int64 uncompressed_size(Datum value)
{
    return static_cast<int64>(toast_raw_datum_size(value)) - VARHDRSZ;
}

[[noreturn]] void raise_null_not_allowed(const EventArguments& arguments, const char* argument)
{
    ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
                    errmsg("%s must not be NULL", arguments.qualified_name(argument))));
    pg_unreachable();
}

Datum checked_text(const EventArguments& arguments, const char* argument, Datum value)
{
    const int64 size = uncompressed_size(value);
    if (size == 0)
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("%s must not be empty", arguments.qualified_name(argument))));
    if (size > limits::max_name_bytes)
        ereport(ERROR, (errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION),
                        errmsg("%s is too long: " INT64_FORMAT " bytes, at most %d are allowed",
                               arguments.qualified_name(argument), size, limits::max_name_bytes)));
    return PointerGetDatum(PG_DETOAST_DATUM_PACKED(value));
}

Datum checked_payload(const EventArguments& arguments)
{
    if (!arguments.payload)
        raise_null_not_allowed(arguments, "payload");
    check_value_size(arguments, "payload", *arguments.payload);
    return *arguments.payload;
}

int16 checked_event_version(const EventArguments& arguments)
{
    const int64 version = arguments.event_version.value_or(limits::min_event_version);
    if (version < limits::min_event_version || version > limits::max_event_version)
        ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
                        errmsg("%s must be between %d and %d, not " INT64_FORMAT,
                               arguments.qualified_name("event_version"), limits::min_event_version,
                               limits::max_event_version, version)));
    return static_cast<int16>(version);
}

std::optional<TimestampTz> checked_available_at(const EventArguments& arguments, TimestampTz now)
{
    if (!arguments.available_at)
        return std::nullopt;
    if (TIMESTAMP_NOT_FINITE(*arguments.available_at))
        ereport(ERROR,
                (errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
                 errmsg("%s must be a finite time", arguments.qualified_name("available_at")),
                 errhint("Leave it out for an event that is available at once.")));
    if (*arguments.available_at <= now)
        return std::nullopt;
    return arguments.available_at;
}

bool strong_random(void* buffer, std::size_t size)
{
    return pg_strong_random(buffer, size);
}

} // namespace

const char* EventArguments::qualified_name(const char* argument) const
{
    return array_index < 0 ? argument : psprintf("events[%d].%s", array_index, argument);
}

EventParameters parameters_of(const Event& event)
{
    return {{UUIDPGetDatum(&event.tracking_id), Int64GetDatum(event.tenant_id),
             Int16GetDatum(event.event_version), event.aggregate_type, event.aggregate_id,
             event.event_type, event.payload, event.metadata, event.trace_id.value_or(Datum{0}), 0},
            {' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', event.trace_id ? ' ' : 'n', 'n'}};
}

Datum required_name(const EventArguments& arguments, const char* argument,
                    const std::optional<Datum>& value)
{
    if (!value)
        raise_null_not_allowed(arguments, argument);
    return checked_text(arguments, argument, *value);
}

void check_value_size(const EventArguments& arguments, const char* argument, Datum value)
{
    const int64 size = uncompressed_size(value);
    if (size > settings::max_payload_size)
        ereport(ERROR,
                (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                 errmsg("%s is too large: " INT64_FORMAT " bytes, at most %d are allowed",
                        arguments.qualified_name(argument), size, settings::max_payload_size),
                 errhint("Put large data elsewhere and send a reference to it, or raise "
                         "outbox.max_payload_size.")));
}

Datum checked_json_object(const EventArguments& arguments, const char* argument,
                          const std::optional<Datum>& value)
{
    if (!value)
        return empty_object();
    check_value_size(arguments, argument, *value);
    Jsonb* object = DatumGetJsonbP(*value);
    if (!JB_ROOT_IS_OBJECT(object))
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("%s must be a JSON object", arguments.qualified_name(argument)),
                        errhint("For example {\"source\": \"checkout\"}.")));
    return JsonbPGetDatum(object);
}

int64 effective_tenant(const EventArguments& arguments)
{
    const auto own = settings::tenant_id();
    if (own && arguments.tenant_id && *own != *arguments.tenant_id)
        ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                        errmsg("%s " INT64_FORMAT " is not the tenant of this session",
                               arguments.qualified_name("tenant_id"), *arguments.tenant_id),
                        errhint("This session acts for the tenant in outbox.tenant_id only.")));
    return own ? *own : arguments.tenant_id.value_or(limits::default_tenant);
}

Event make_event(const EventArguments& arguments, TimestampTz now)
{
    Event event;
    event.tenant_id = effective_tenant(arguments);
    event.aggregate_type = required_name(arguments, "aggregate_type", arguments.aggregate_type);
    event.aggregate_id = required_name(arguments, "aggregate_id", arguments.aggregate_id);
    event.event_type = required_name(arguments, "event_type", arguments.event_type);
    event.event_version = checked_event_version(arguments);
    event.payload = checked_payload(arguments);
    event.metadata = checked_json_object(arguments, "metadata", arguments.metadata);
    event.trace_id = arguments.trace_id ? arguments.trace_id : settings::session_traceparent();
    event.available_at = checked_available_at(arguments, now);
    if (arguments.dedup_key)
        event.dedup_key = checked_text(arguments, "dedup_key", *arguments.dedup_key);
    event.tracking_id = new_tracking_id(now);
    return event;
}

pg_uuid_t new_tracking_id(TimestampTz now)
{
    static constinit UuidV7 generator{strong_random};
    static int generator_pid = 0;
    if (generator_pid != MyProcPid) {
        generator.reset();
        generator_pid = MyProcPid;
    }

    constexpr int64 unix_epoch =
        static_cast<int64>(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
    const Uuid uuid = generator.next(now + unix_epoch);
    pg_uuid_t result;
    static_assert(sizeof(result.data) == sizeof(uuid));
    std::memcpy(result.data, uuid.data(), sizeof(result.data));
    return result;
}

} // namespace outbox

OUTBOX_SQL_FUNCTION(outbox_new_tracking_id)
{
    return outbox::pg::sql_entry([&] {
        auto* uuid = static_cast<pg_uuid_t*>(palloc(sizeof(pg_uuid_t)));
        *uuid = outbox::new_tracking_id(GetCurrentTimestamp());
        PG_RETURN_UUID_P(uuid);
    });
}
