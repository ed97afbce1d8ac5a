// Values of SQL types that C++ wants in another form.
#pragma once

#include "core/id_ranges.hpp"
#include "pg/postgres.hpp"

#include <optional>
#include <string_view>

namespace outbox::pg {

// int8multirange and sets of ids.
Datum to_multirange(IdRanges ids);
IdRanges from_multirange(Datum multirange);

// bigint[]
Datum to_id_array(IdRanges ids); // one element per id
Datum to_bigint_array(std::span<const int64> values);

// The elements, which must not be NULL, and no more than `limit`. `argument` is for messages.
std::span<const int64> from_bigint_array(Datum array, const char* argument, int limit);

// text[] as its elements; NULL ones are an error.
std::span<const Datum> from_text_array(Datum array, const char* argument);

// In microseconds, a month being 30 days. Beyond what 64 bits hold, or infinite: the greatest or
// least number.
int64 to_microseconds(const Interval& interval);
Interval to_interval(int64 microseconds);

inline std::string_view to_view(Datum text)
{
    const struct varlena* value = PG_DETOAST_DATUM_PACKED(text);
    return {VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value)};
}

// Texts of the database in UTF-8, and back. A database that does not know its encoding is taken at
// its word. The result is terminated if, and only if, it had to be converted.
std::string_view to_utf8(std::string_view text);
std::string_view from_utf8(std::string_view text);

} // namespace outbox::pg
