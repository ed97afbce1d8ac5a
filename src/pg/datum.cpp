#include "pg/datum.hpp"

extern "C" {
#include "utils/multirangetypes.h"
#include "utils/typcache.h"
}

#include <limits>

namespace outbox::pg {

namespace {

// Returns the type cache entry of int8range with its range functions.
TypeCacheEntry* int8range_type()
{
    return lookup_type_cache(INT8RANGEOID, TYPECACHE_RANGE_INFO);
}

// Makes a finite bound; a lower one is inclusive, an upper one exclusive.
RangeBound make_bound(Id value, bool lower)
{
    RangeBound bound;
    bound.val = Int64GetDatum(value);
    bound.infinite = false;
    bound.inclusive = lower;
    bound.lower = lower;
    return bound;
}

} // namespace

Datum to_multirange(IdRanges ids)
{
    TypeCacheEntry* type = int8range_type();
    auto** ranges = static_cast<RangeType**>(palloc(sizeof(RangeType*) * Max(ids.size(), 1u)));
    for (std::size_t i = 0; i < ids.size(); ++i) {
        RangeBound lower = make_bound(ids[i].from, true);
        RangeBound upper = make_bound(ids[i].upto, false);
        ranges[i] = make_plain_range(type, &lower, &upper);
    }
    return MultirangeTypePGetDatum(
        make_multirange(INT8MULTIRANGEOID, type, static_cast<int32>(ids.size()), ranges));
}

IdRanges from_multirange(Datum multirange)
{
    TypeCacheEntry* type = int8range_type();
    int32 count;
    RangeType** ranges;
    multirange_deserialize(type, DatumGetMultirangeTypeP(multirange), &count, &ranges);
    auto* ids = static_cast<IdRange*>(palloc(sizeof(IdRange) * Max(count, 1)));
    for (int32 i = 0; i < count; ++i) {
        RangeBound lower;
        RangeBound upper;
        bool empty;
        range_deserialize(type, ranges[i], &lower, &upper, &empty);
        ids[i] = {DatumGetInt64(lower.val), DatumGetInt64(upper.val)};
    }
    return {ids, static_cast<std::size_t>(count)};
}

Datum to_id_array(IdRanges ids)
{
    auto* values = static_cast<int64*>(palloc(sizeof(int64) * Max(count_ids(ids), 1)));
    std::size_t count = 0;
    for (const IdRange& range : ids)
        for (Id id = range.from; id < range.upto; ++id)
            values[count++] = id;
    return to_bigint_array({values, count});
}

Datum to_bigint_array(std::span<const int64> values)
{
    auto* datums = static_cast<Datum*>(palloc(sizeof(Datum) * Max(values.size(), 1u)));
    for (std::size_t i = 0; i < values.size(); ++i)
        datums[i] = Int64GetDatum(values[i]);
    return PointerGetDatum(construct_array(datums, static_cast<int>(values.size()), INT8OID,
                                           sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

std::span<const int64> from_bigint_array(Datum array, const char* argument, int limit)
{
    ArrayType* value = DatumGetArrayTypeP(array);
    const int count = ArrayGetNItems(ARR_NDIM(value), ARR_DIMS(value));
    if (array_contains_nulls(value))
        ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
                        errmsg("%s must not contain NULLs", argument)));
    if (count > limit)
        ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                        errmsg("%s has %d elements, more than %d", argument, count, limit),
                        errhint("Split the call.")));
    return {reinterpret_cast<const int64*>(ARR_DATA_PTR(value)), static_cast<std::size_t>(count)};
}

std::span<const Datum> from_text_array(Datum array, const char* argument)
{
    ArrayType* value = DatumGetArrayTypeP(array);
    if (array_contains_nulls(value))
        ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
                        errmsg("%s must not contain NULLs", argument)));
    Datum* elements;
    int count;
    deconstruct_array(value, TEXTOID, -1, false, TYPALIGN_INT, &elements, nullptr, &count);
    return {elements, static_cast<std::size_t>(count)};
}

int64 to_microseconds(const Interval& interval)
{
    const __int128 days = static_cast<__int128>(interval.month) * DAYS_PER_MONTH + interval.day;
    const __int128 total = days * USECS_PER_DAY + interval.time;
    if (total > std::numeric_limits<int64>::max())
        return std::numeric_limits<int64>::max();
    if (total < std::numeric_limits<int64>::min())
        return std::numeric_limits<int64>::min();
    return static_cast<int64>(total);
}

Interval to_interval(int64 microseconds)
{
    Interval interval = {};
    interval.time = microseconds;
    return interval;
}

std::string_view to_utf8(std::string_view text)
{
    if (GetDatabaseEncoding() == PG_UTF8 || GetDatabaseEncoding() == PG_SQL_ASCII)
        return text;
    const char* converted =
        pg_server_to_any(const_cast<char*>(text.data()), static_cast<int>(text.size()), PG_UTF8);
    return converted == text.data() ? text : std::string_view(converted);
}

std::string_view from_utf8(std::string_view text)
{
    if (GetDatabaseEncoding() == PG_UTF8 || GetDatabaseEncoding() == PG_SQL_ASCII)
        return text;
    const char* converted =
        pg_any_to_server(const_cast<char*>(text.data()), static_cast<int>(text.size()), PG_UTF8);
    return converted == text.data() ? text : std::string_view(converted);
}

} // namespace outbox::pg
