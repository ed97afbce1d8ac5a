#include "pg/arguments.hpp"

namespace outbox::pg {

void raise_null_argument(const char* argument)
{
    ereport(ERROR,
            (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not be NULL", argument)));
    pg_unreachable();
}

Oid declared_argument_type(FunctionCallInfo fcinfo, int number)
{
    const Oid function = fcinfo->flinfo->fn_oid;
    const HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    if (!HeapTupleIsValid(tuple))
        elog(ERROR, "cache lookup failed for function %u", function);
    const Oid type = reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple))->proargtypes.values[number];
    ReleaseSysCache(tuple);
    return type;
}

Datum to_jsonb(Datum value, Oid type)
{
    if (type == JSONBOID)
        return value;
    return DirectFunctionCall1(jsonb_in, CStringGetDatum(TextDatumGetCString(value)));
}

} // namespace outbox::pg
