// outbox_enqueue_many(): reads an array of events from the server's binary jsonb.
#include "enqueue/enqueue.hpp"

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/parse_number.hpp"
#include "enqueue/event_arguments.hpp"
#include "enqueue/validate_payload.hpp"
#include "log/append.hpp"
#include "pg/arguments.hpp"
#include "pg/exceptions.hpp"

#include <cstring>
#include <iterator>
#include <string>
#include <string_view>

namespace outbox {

namespace {

// Raises datatype_mismatch: events[7].payload must be `expected`.
[[noreturn]] void raise_wrong_type(const EventArguments& event, const char* key,
                                   const char* expected)
{
    ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
                    errmsg("%s must be %s", event.qualified_name(key), expected)));
    pg_unreachable();
}

// Returns a JSON string as text. Raises datatype_mismatch for other values.
Datum read_text(const EventArguments& event, const char* key, const JsonbValue& value)
{
    if (value.type != jbvString)
        raise_wrong_type(event, key, "a string");
    return PointerGetDatum(cstring_to_text_with_len(value.val.string.val, value.val.string.len));
}

// Returns a JSON number of any size as digits. Raises datatype_mismatch for other values and for a
// number with a decimal point.
char* integer_digits(const EventArguments& event, const char* key, const JsonbValue& value,
                     const char* expected)
{
    if (value.type != jbvNumeric)
        raise_wrong_type(event, key, expected);
    char* digits =
        DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value.val.numeric)));
    if (std::strchr(digits, '.') != nullptr)
        raise_wrong_type(event, key, expected);
    return digits;
}

// Returns a JSON number as a bigint. Raises datatype_mismatch if it is no integer,
// numeric_value_out_of_range if it does not fit.
int64 read_bigint(const EventArguments& event, const char* key, const JsonbValue& value)
{
    const auto number = parse_bigint(integer_digits(event, key, value, "an integer"));
    if (!number)
        ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
                        errmsg("%s is out of range for a bigint", event.qualified_name(key))));
    return *number;
}

// Returns a JSON string, or an integer of any size, as text. Raises datatype_mismatch for others.
Datum read_identifier(const EventArguments& event, const char* key, const JsonbValue& value)
{
    if (value.type == jbvString)
        return read_text(event, key, value);
    return CStringGetTextDatum(integer_digits(event, key, value, "a string or an integer"));
}

// Returns any JSON value as a new jsonb.
Datum read_json(const JsonbValue& value)
{
    return JsonbPGetDatum(JsonbValueToJsonb(const_cast<JsonbValue*>(&value)));
}

// Returns a JSON string as a time. Raises datatype_mismatch for other values. Prefixes the error of
// timestamptz_in() with the element and key, which it does not name, and throws outbox::Error.
TimestampTz read_time(const EventArguments& event, const char* key, const JsonbValue& value)
{
    if (value.type != jbvString)
        raise_wrong_type(event, key, "a string with a time");
    const char* name = event.qualified_name(key);
    const char* text = pnstrdup(value.val.string.val, value.val.string.len);
    try {
        return pg::guarded_call([&] {
            return DatumGetTimestampTz(DirectFunctionCall3(timestamptz_in, CStringGetDatum(text),
                                                           ObjectIdGetDatum(InvalidOid),
                                                           Int32GetDatum(-1)));
        });
    } catch (const pg::ServerError& error) {
        throw Error(unpack_sql_state(error.sqlstate()), std::string(name) + ": " + error.what());
    }
}

enum class EventKey {
    aggregate_type,
    aggregate_id,
    event_type,
    payload,
    event_version,
    tenant_id,
    metadata,
    trace_id,
    available_at,
    dedup_key,
};

constexpr const char* key_names[] = {
    "aggregate_type", "aggregate_id", "event_type", "payload",      "event_version",
    "tenant_id",      "metadata",     "trace_id",   "available_at", "dedup_key",
};

// Returns the key of this name. Raises invalid_parameter_value if there is none.
EventKey parse_key(const EventArguments& event, std::string_view name)
{
    for (std::size_t i = 0; i < std::size(key_names); ++i)
        if (name == key_names[i])
            return static_cast<EventKey>(i);
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("events[%d] has an unknown key \"%s\"", event.array_index,
                           pnstrdup(name.data(), pg_mbcliplen(name.data(), name.size(),
                                                              limits::max_name_bytes))),
                    errhint("Known keys are the names of the arguments of outbox_enqueue().")));
    pg_unreachable();
}

// Sets the argument that the key `name` stands for. Raises an error for an unknown key or a wrong
// type.
void set_argument(EventArguments& event, std::string_view name, const JsonbValue& value)
{
    const EventKey key = parse_key(event, name);
    // JSON null is a valid payload. As another key's value it means SQL NULL.
    if (value.type == jbvNull && key != EventKey::payload)
        return;

    const char* argument = key_names[static_cast<int>(key)];
    switch (key) {
    case EventKey::aggregate_type:
        event.aggregate_type = read_text(event, argument, value);
        break;
    case EventKey::aggregate_id:
        event.aggregate_id = read_identifier(event, argument, value);
        break;
    case EventKey::event_type:
        event.event_type = read_text(event, argument, value);
        break;
    case EventKey::payload:
        event.payload = read_json(value);
        break;
    case EventKey::event_version:
        event.event_version = read_bigint(event, argument, value);
        break;
    case EventKey::tenant_id:
        event.tenant_id = read_bigint(event, argument, value);
        break;
    case EventKey::metadata:
        event.metadata = read_json(value);
        break;
    case EventKey::trace_id:
        event.trace_id = read_text(event, argument, value);
        break;
    case EventKey::available_at:
        event.available_at = read_time(event, argument, value);
        break;
    case EventKey::dedup_key:
        event.dedup_key = read_text(event, argument, value);
        break;
    }
}

// Reads an element of the array without checking its values. `number` is its index, for messages.
// Raises datatype_mismatch if it is no object, and the errors of set_argument().
EventArguments read_element(int number, const JsonbValue& element)
{
    if (element.type != jbvBinary || !JsonContainerIsObject(element.val.binary.data))
        ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
                        errmsg("events[%d] must be an object", number)));
    EventArguments event;
    event.array_index = number;
    JsonbIterator* keys = JsonbIteratorInit(element.val.binary.data);
    JsonbValue key;
    JsonbValue value;
    while (const JsonbIteratorToken token = JsonbIteratorNext(&keys, &key, true)) {
        if (token != WJB_KEY)
            continue;
        JsonbIteratorNext(&keys, &value, true);
        set_argument(event, {key.val.string.val, static_cast<std::size_t>(key.val.string.len)},
                     value);
    }
    return event;
}

// Reads up to max_events_per_append elements into `events`, and checks them, also against the
// catalog. `first` is the index of the first one. Returns their number.
int read_chunk(JsonbIterator** elements, int first, TimestampTz now, Event* events)
{
    int count = 0;
    JsonbValue element;
    while (count < max_events_per_append &&
           JsonbIteratorNext(elements, &element, true) == WJB_ELEM) {
        const EventArguments arguments = read_element(first + count, element);
        events[count] = make_event(arguments, now);
        check_against_catalog(arguments, events[count]);
        ++count;
    }
    return count;
}

// Enqueues the events of a JSON array, in chunks, each with a time of its own. Returns the
// tracking_ids in array order. Raises invalid_parameter_value if it is no array.
ArrayType* enqueue_array(Jsonb* array)
{
    if (!JB_ROOT_IS_ARRAY(array) || JB_ROOT_IS_SCALAR(array))
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("events must be a JSON array of objects")));

    const int total = JB_ROOT_COUNT(array);
    auto* tracking_ids = static_cast<pg_uuid_t*>(palloc(sizeof(pg_uuid_t) * Max(total, 1)));
    auto* events = static_cast<Event*>(palloc(sizeof(Event) * max_events_per_append));
    JsonbValue begin;
    JsonbIterator* elements = JsonbIteratorInit(&array->root);
    JsonbIteratorNext(&elements, &begin, false);

    // The context is reset after each chunk, so that memory does not grow with the array. A reset
    // keeps the first block, which at 1 kB per event is enough for most chunks.
    const MemoryContext chunk = AllocSetContextCreate(
        CurrentMemoryContext, "outbox events", Size{1024} * Min(total, max_events_per_append),
        ALLOCSET_DEFAULT_INITSIZE, ALLOCSET_DEFAULT_MAXSIZE);
    for (int done = 0; done < total;) {
        CHECK_FOR_INTERRUPTS();
        const MemoryContext before = MemoryContextSwitchTo(chunk);
        const TimestampTz now = GetCurrentTimestamp();
        const int count = read_chunk(&elements, done, now, events);
        enqueue_events(events, count, now, tracking_ids + done);
        done += count;
        MemoryContextSwitchTo(before);
        MemoryContextReset(chunk);
    }
    MemoryContextDelete(chunk);

    auto* datums = static_cast<Datum*>(palloc(sizeof(Datum) * Max(total, 1)));
    for (int i = 0; i < total; ++i)
        datums[i] = UUIDPGetDatum(&tracking_ids[i]);
    return construct_array(datums, total, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR);
}

} // namespace

} // namespace outbox

OUTBOX_SQL_FUNCTION(outbox_enqueue_many)
{
    return outbox::pg::sql_entry([&] {
        PreventCommandIfReadOnly("outbox_enqueue_many()");
        const Datum given = outbox::pg::required_argument(fcinfo, 0, "events");
        const Datum events =
            outbox::pg::to_jsonb(given, outbox::pg::declared_argument_type(fcinfo, 0));
        PG_RETURN_ARRAYTYPE_P(outbox::enqueue_array(DatumGetJsonbP(events)));
    });
}
