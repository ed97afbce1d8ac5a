// Conversions between Datums and C++ values.
#pragma once

#include "core/id_ranges.hpp"
#include "pg/postgres.hpp"

#include <optional>
#include <string_view>

namespace outbox::pg {

// Convert sets of ids to and from int8multirange. A multirange that is read has no infinite bounds.
// Results are palloc'd.
Datum to_multirange(IdRanges ids);
IdRanges from_multirange(Datum multirange);

// Make a palloc'd bigint[]; to_id_array() with one element per id.
Datum to_id_array(IdRanges ids);
Datum to_bigint_array(std::span<const int64> values);

// Returns the elements of a bigint[]. Raises null_value_not_allowed for a NULL element,
// program_limit_exceeded for more than `limit` elements; `argument` is for the message.
std::span<const int64> from_bigint_array(Datum array, const char* argument, int limit);

// Returns the elements of a text[], palloc'd. Raises null_value_not_allowed for a NULL element;
// `argument` is for the message.
std::span<const Datum> from_text_array(Datum array, const char* argument);

// Converts an interval to microseconds, with 30 days per month. Saturates at the limits of int64,
// also for infinite intervals.
int64 to_microseconds(const Interval& interval);

// Makes an interval without months and days.
Interval to_interval(int64 microseconds);

// Returns the bytes of a text value, detoasted if necessary. Not null-terminated.
inline std::string_view to_view(Datum text)
{
    const struct varlena* value = PG_DETOAST_DATUM_PACKED(text);
    return {VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value)};
}

// Converts text from the database encoding to UTF-8, and back. In a UTF8 or SQL_ASCII database the
// text is returned as it is. Only a converted result is null-terminated and palloc'd. Text that
// cannot be converted raises an error.
std::string_view to_utf8(std::string_view text);
std::string_view from_utf8(std::string_view text);

} // namespace outbox::pg
