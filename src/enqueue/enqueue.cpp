#include "enqueue/enqueue.hpp"

#include "enqueue/dedup.hpp"
#include "enqueue/event_arguments.hpp"
#include "enqueue/schedule.hpp"
#include "enqueue/validate_payload.hpp"
#include "log/append.hpp"
#include "pg/arguments.hpp"
#include "pg/exceptions.hpp"

namespace outbox {

namespace {

// The arguments of outbox_enqueue(), in their order.
enum Argument {
    arg_aggregate_type,
    arg_aggregate_id,
    arg_event_type,
    arg_payload,
    arg_event_version,
    arg_tenant_id,
    arg_metadata,
    arg_trace_id,
    arg_available_at,
    arg_dedup_key,
};

// Returns an aggregate_id of type text, bigint or uuid as text.
Datum aggregate_id_to_text(Datum value, Oid type)
{
    switch (type) {
    case TEXTOID:
        return value;
    case INT8OID:
        return CStringGetTextDatum(DatumGetCString(DirectFunctionCall1(int8out, value)));
    case UUIDOID:
        return CStringGetTextDatum(DatumGetCString(DirectFunctionCall1(uuid_out, value)));
    }
    elog(ERROR, "unexpected type %u of aggregate_id", type);
    pg_unreachable();
}

// Reads the arguments of outbox_enqueue() without checking them. Converts aggregate_id to text,
// payload to jsonb.
EventArguments read_arguments(FunctionCallInfo fcinfo)
{
    EventArguments arguments;
    arguments.aggregate_type = pg::optional_argument(fcinfo, arg_aggregate_type);
    if (!PG_ARGISNULL(arg_aggregate_id))
        arguments.aggregate_id =
            aggregate_id_to_text(PG_GETARG_DATUM(arg_aggregate_id),
                                 pg::declared_argument_type(fcinfo, arg_aggregate_id));
    arguments.event_type = pg::optional_argument(fcinfo, arg_event_type);
    if (!PG_ARGISNULL(arg_payload))
        arguments.payload = pg::to_jsonb(PG_GETARG_DATUM(arg_payload),
                                         pg::declared_argument_type(fcinfo, arg_payload));
    if (!PG_ARGISNULL(arg_event_version))
        arguments.event_version = PG_GETARG_INT32(arg_event_version);
    if (!PG_ARGISNULL(arg_tenant_id))
        arguments.tenant_id = PG_GETARG_INT64(arg_tenant_id);
    arguments.metadata = pg::optional_argument(fcinfo, arg_metadata);
    arguments.trace_id = pg::optional_argument(fcinfo, arg_trace_id);
    if (!PG_ARGISNULL(arg_available_at))
        arguments.available_at = PG_GETARG_TIMESTAMPTZ(arg_available_at);
    arguments.dedup_key = pg::optional_argument(fcinfo, arg_dedup_key);
    return arguments;
}

} // namespace

void enqueue_events(Event* events, int count, TimestampTz now, pg_uuid_t* results)
{
    int for_log = 0;
    for (int i = 0; i < count; ++i) {
        const Event& event = events[i];
        const auto original_id = event.dedup_key ? claim_dedup_key(event, now) : std::nullopt;
        results[i] = original_id.value_or(event.tracking_id);
        if (original_id)
            continue;
        if (event.available_at)
            schedule_event(event);
        else
            events[for_log++] = event;
    }
    if (for_log > 0)
        append_to_log(events, for_log);
}

} // namespace outbox

OUTBOX_SQL_FUNCTION(outbox_enqueue)
{
    return outbox::pg::sql_entry([&] {
        PreventCommandIfReadOnly("outbox_enqueue()");
        const TimestampTz now = GetCurrentTimestamp();
        const outbox::EventArguments arguments = outbox::read_arguments(fcinfo);
        outbox::Event event = outbox::make_event(arguments, now);
        outbox::check_against_catalog(arguments, event);
        auto* tracking_id = static_cast<pg_uuid_t*>(palloc(sizeof(pg_uuid_t)));
        outbox::enqueue_events(&event, 1, now, tracking_id);
        PG_RETURN_UUID_P(tracking_id);
    });
}
