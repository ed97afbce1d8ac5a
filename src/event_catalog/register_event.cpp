// C functions that outbox_register_event(), which is PL/pgSQL, calls to check schemas and pointers;
// and the trigger function that invalidates the schema caches of all backends.
#include "core/fixed_string.hpp"
#include "core/json/json_pointer.hpp"
#include "core/schema/compatibility.hpp"
#include "event_catalog/schema_cache.hpp"
#include "extension/relations.hpp"
#include "pg/arguments.hpp"
#include "pg/datum.hpp"
#include "pg/exceptions.hpp"

extern "C" {
#include "commands/trigger.h"
}

namespace outbox {

namespace {

// Reason of a failed check, empty if it passed. FixedString, because the frame of the SQL function
// may hold no destructor.
using CheckResult = FixedString<1024>;

// Returns an empty result for std::nullopt; truncates longer text.
CheckResult to_check_result(const std::optional<std::string>& text)
{
    return text ? CheckResult(*text) : CheckResult();
}

// Returns the text of a jsonb in UTF-8, palloc'd.
std::string_view json_text(Datum jsonb)
{
    const char* text = JsonbToCString(nullptr, &DatumGetJsonbP(jsonb)->root, 0);
    return pg::to_utf8(text);
}

// Returns the reason as text in the database encoding; SQL NULL if the check passed.
Datum return_check_result(FunctionCallInfo fcinfo, const CheckResult& result)
{
    if (*result.text() == '\0')
        PG_RETURN_NULL();
    const std::string_view text = pg::from_utf8(result.text());
    return PointerGetDatum(cstring_to_text_with_len(text.data(), static_cast<int>(text.size())));
}

// Throws outbox::Error if the schema cannot be normalized or compiled.
void check_schema(std::string_view text)
{
    const schema::CompiledSchema compiled(text, schema_callbacks());
}

// Returns the first breaking change. Throws outbox::Error if one of the schemas is invalid.
CheckResult check_compatibility(std::string_view before, std::string_view after)
{
    const schema::RegexMatch match = schema_callbacks().match;
    return to_check_result(schema::find_breaking_change(schema::normalize(before, match),
                                                        schema::normalize(after, match)));
}

// Returns true for a JSON pointer other than the empty one.
bool is_pointer(std::string_view text)
{
    const auto steps = json::parse_pointer(text);
    return steps && !steps->empty();
}

} // namespace

} // namespace outbox

// Raises an error if the JSON Schema is invalid or not supported.
OUTBOX_SQL_FUNCTION(outbox_check_schema)
{
    return outbox::pg::sql_entry([&] {
        outbox::check_schema(outbox::json_text(PG_GETARG_DATUM(0)));
        PG_RETURN_VOID();
    });
}

// Returns why the second schema is incompatible with the first; NULL if it is compatible.
OUTBOX_SQL_FUNCTION(outbox_breaking_change)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        return return_check_result(fcinfo, check_compatibility(json_text(PG_GETARG_DATUM(0)),
                                                               json_text(PG_GETARG_DATUM(1))));
    });
}

// Returns true for a JSON pointer other than the empty one, which refers to the whole payload.
OUTBOX_SQL_FUNCTION(outbox_is_pointer)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        PG_RETURN_BOOL(is_pointer(pg::to_utf8(pg::to_view(PG_GETARG_DATUM(0)))));
    });
}

// Trigger function: sends a relcache invalidation of event_types, which clears the schema cache of
// every backend. Other backends receive it after the commit, this one at the end of the command and
// again if the transaction is rolled back.
OUTBOX_SQL_FUNCTION(outbox_event_types_changed)
{
    return outbox::pg::sql_entry([&] {
        if (!CALLED_AS_TRIGGER(fcinfo))
            ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
                            errmsg("outbox_event_types_changed() is a trigger function")));
        CacheInvalidateRelcache(reinterpret_cast<TriggerData*>(fcinfo->context)->tg_relation);
        return PointerGetDatum(nullptr);
    });
}
