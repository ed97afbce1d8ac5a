// Reads arguments of SQL functions.
#pragma once

#include "pg/postgres.hpp"

#include <optional>

namespace outbox::pg {

// Raises null_value_not_allowed for the argument of this name.
[[noreturn]] void raise_null_argument(const char* argument);

// Returns std::nullopt for NULL, and for an argument that this overload does not have.
inline std::optional<Datum> optional_argument(FunctionCallInfo fcinfo, int number)
{
    if (number >= PG_NARGS() || PG_ARGISNULL(number))
        return std::nullopt;
    return PG_GETARG_DATUM(number);
}

// Raises null_value_not_allowed for NULL, and for an argument that this overload does not have.
// `name` is for the message.
inline Datum required_argument(FunctionCallInfo fcinfo, int number, const char* name)
{
    const auto value = optional_argument(fcinfo, number);
    if (!value)
        raise_null_argument(name);
    return *value;
}

// Returns the declared type of an argument of the called function, from pg_proc: overloads with
// different types share one C function.
Oid declared_argument_type(FunctionCallInfo fcinfo, int number);

// Converts a value of type jsonb, json or text to jsonb. Text that is not JSON raises an error.
Datum to_jsonb(Datum value, Oid type);

} // namespace outbox::pg
