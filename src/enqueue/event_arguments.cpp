#include "enqueue/event_arguments.hpp"

#include "core/limits.hpp"
#include "extension/guc.hpp"
#include "extension/tenant.hpp"

namespace outbox {

namespace {

// Returns the payload. Raises null_value_not_allowed for NULL, program_limit_exceeded if it is
// larger than outbox.max_payload_size.
Datum checked_payload(const EventArguments& arguments)
{
    const ArgumentName name = arguments.name_of("payload");
    if (!arguments.payload)
        raise_null_not_allowed(name);
    check_value_size(name, *arguments.payload);
    return *arguments.payload;
}

// Returns the version, or the least one for NULL. Raises numeric_value_out_of_range.
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

// Returns std::nullopt for a time that is not in the future: the event goes to the log at once.
// Raises datetime_value_out_of_range for an infinite time.
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

} // namespace

Event make_event(const EventArguments& arguments, TimestampTz now)
{
    const auto name = [&](const char* argument, const std::optional<Datum>& value) {
        return required_name(arguments.name_of(argument), value);
    };
    Event event;
    event.tenant_id = effective_tenant(arguments.tenant_id, arguments.name_of("tenant_id"));
    event.aggregate_type = name("aggregate_type", arguments.aggregate_type);
    event.aggregate_id = name("aggregate_id", arguments.aggregate_id);
    event.event_type = name("event_type", arguments.event_type);
    event.event_version = checked_event_version(arguments);
    event.payload = checked_payload(arguments);
    event.metadata = checked_json_object(arguments.name_of("metadata"), arguments.metadata);
    event.trace_id = arguments.trace_id ? arguments.trace_id : settings::session_traceparent();
    event.available_at = checked_available_at(arguments, now);
    if (arguments.dedup_key)
        event.dedup_key = checked_name(arguments.name_of("dedup_key"), *arguments.dedup_key);
    event.tracking_id = new_tracking_id(now);
    return event;
}

} // namespace outbox
