// Arguments of SQL functions.
#pragma once

#include "pg/postgres.hpp"

#include <optional>

namespace outbox::pg {

[[noreturn]] void raise_null_argument(const char* argument);

// Nothing for NULL, and for one that this overload does not have.
inline std::optional<Datum> optional_argument(FunctionCallInfo fcinfo, int number)
{
    if (number >= PG_NARGS() || PG_ARGISNULL(number))
        return std::nullopt;
    return PG_GETARG_DATUM(number);
}

// Raises an error instead.
inline Datum required_argument(FunctionCallInfo fcinfo, int number, const char* name)
{
    const auto value = optional_argument(fcinfo, number);
    if (!value)
        raise_null_argument(name);
    return *value;
}

// The type that the function was declared with: overloads share their code.
Oid declared_argument_type(FunctionCallInfo fcinfo, int number);

// jsonb, json or text as jsonb.
Datum to_jsonb(Datum value, Oid type);

} // namespace outbox::pg
