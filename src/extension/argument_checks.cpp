#include "extension/argument_checks.hpp"

#include "core/limits.hpp"
#include "extension/guc.hpp"

extern "C" {
#include "access/detoast.h"
}

namespace outbox {

namespace {

// jsonb '{}' in the server's on-disk layout.
struct EmptyObject {
    alignas(int32) char header[VARHDRSZ];
    JsonbContainer container;
};

// Returns {} in static memory, which must not be freed.
Datum empty_object()
{
    static EmptyObject object;
    SET_VARSIZE(&object, sizeof(EmptyObject));
    object.container.header = JB_FOBJECT;
    return PointerGetDatum(&object);
}

// Returns the size before compression, without fetching an out-of-line value.
int64 uncompressed_size(Datum value)
{
    return static_cast<int64>(toast_raw_datum_size(value)) - VARHDRSZ;
}

} // namespace

const char* ArgumentName::qualified() const
{
    return array_index_ < 0 ? name_ : psprintf("events[%d].%s", array_index_, name_);
}

void raise_null_not_allowed(const ArgumentName& argument)
{
    ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
                    errmsg("%s must not be NULL", argument.qualified())));
    pg_unreachable();
}

Datum checked_name(const ArgumentName& argument, Datum value)
{
    const int64 size = uncompressed_size(value);
    if (size == 0)
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("%s must not be empty", argument.qualified())));
    if (size > limits::max_name_bytes)
        ereport(ERROR, (errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION),
                        errmsg("%s is too long: " INT64_FORMAT " bytes, at most %d are allowed",
                               argument.qualified(), size, limits::max_name_bytes)));
    return PointerGetDatum(PG_DETOAST_DATUM_PACKED(value));
}

Datum required_name(const ArgumentName& argument, const std::optional<Datum>& value)
{
    if (!value)
        raise_null_not_allowed(argument);
    return checked_name(argument, *value);
}

void check_value_size(const ArgumentName& argument, Datum value)
{
    const int64 size = uncompressed_size(value);
    if (size > settings::max_payload_size)
        ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                        errmsg("%s is too large: " INT64_FORMAT " bytes, at most %d are allowed",
                               argument.qualified(), size, settings::max_payload_size),
                        errhint("Put large data elsewhere and send a reference to it, or raise "
                                "outbox.max_payload_size.")));
}

Datum checked_json_object(const ArgumentName& argument, const std::optional<Datum>& value)
{
    if (!value)
        return empty_object();
    check_value_size(argument, *value);
    Jsonb* object = DatumGetJsonbP(*value);
    if (!JB_ROOT_IS_OBJECT(object))
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("%s must be a JSON object", argument.qualified()),
                        errhint("For example {\"source\": \"checkout\"}.")));
    return JsonbPGetDatum(object);
}

} // namespace outbox
