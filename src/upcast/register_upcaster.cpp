// outbox_register_upcaster(). It is in C++ because it stores the role of its caller.
#include "core/limits.hpp"
#include "extension/owner_spi.hpp"
#include "extension/tenant.hpp"
#include "pg/arguments.hpp"
#include "pg/datum.hpp"
#include "pg/exceptions.hpp"
#include "upcast/upcaster_cache.hpp"

extern "C" {
#include "commands/trigger.h"
}

namespace outbox {

namespace {

// Returns the event type. Raises invalid_parameter_value if it is empty,
// string_data_right_truncation if it is longer than limits::max_name_bytes.
Datum event_type_argument(Datum type)
{
    const std::size_t size = pg::to_view(type).size();
    if (size == 0)
        ereport(ERROR,
                (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("event_type must not be empty")));
    if (size > limits::max_name_bytes)
        ereport(ERROR, (errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION),
                        errmsg("event_type is too long: %zu bytes, at most %d are allowed", size,
                               limits::max_name_bytes)));
    return type;
}

// Returns the version. Raises invalid_parameter_value if it is out of range.
int from_version_argument(Datum version)
{
    constexpr int max_from_version = limits::max_event_version - 1;
    const int from = DatumGetInt32(version);
    if (from < limits::min_event_version || from > max_from_version)
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("from_version must be between %d and %d, not %d",
                               limits::min_event_version, max_from_version, from)));
    return from;
}

// Inserts a row into _outbox.upcasters, with the names of function and role. Raises
// duplicate_object if the event type has an upcaster from this version. Call inside as_owner().
void register_upcaster(Datum event_type, int from, Oid function, Oid registrar)
{
    static constinit Statement insert{
        "INSERT INTO _outbox.upcasters"
        " (event_type, from_version, function_schema, function_name, registered_by)"
        " VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
        {TEXTOID, INT4OID, TEXTOID, TEXTOID, TEXTOID}};
    const Datum values[] = {event_type, Int32GetDatum(from),
                            CStringGetTextDatum(get_namespace_name(get_func_namespace(function))),
                            CStringGetTextDatum(get_func_name(function)),
                            CStringGetTextDatum(GetUserNameFromId(registrar, false))};
    if (insert.execute_with_latest_snapshot(values) == 0)
        ereport(ERROR,
                (errcode(ERRCODE_DUPLICATE_OBJECT),
                 errmsg("event type \"%s\" already has an upcaster from version %d",
                        TextDatumGetCString(event_type), from),
                 errhint("Replace the function, or call outbox_unregister_upcaster() first.")));
}

} // namespace

} // namespace outbox

OUTBOX_SQL_FUNCTION(outbox_register_upcaster)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        PreventCommandIfReadOnly("outbox_register_upcaster()");
        require_no_tenant("outbox_register_upcaster()"); // upcasters get events of all tenants
        const Datum type = event_type_argument(pg::required_argument(fcinfo, 0, "event_type"));
        const int from = from_version_argument(pg::required_argument(fcinfo, 1, "from_version"));
        const Oid function = DatumGetObjectId(pg::required_argument(fcinfo, 2, "function"));
        const Oid caller = GetUserId();
        check_upcaster_function(function, caller);
        as_owner([&] { register_upcaster(type, from, function, caller); });
        PG_RETURN_VOID();
    });
}

// Internal: trigger on _outbox.upcasters that sends a relcache invalidation, upon which backends
// read the table again.
OUTBOX_SQL_FUNCTION(outbox_upcasters_changed)
{
    return outbox::pg::sql_entry([&] {
        if (!CALLED_AS_TRIGGER(fcinfo))
            ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
                            errmsg("outbox_upcasters_changed() is a trigger")));
        const auto* data = reinterpret_cast<const TriggerData*>(fcinfo->context);
        CacheInvalidateRelcache(data->tg_relation);
        return PointerGetDatum(nullptr);
    });
}
