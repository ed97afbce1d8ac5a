// SQL functions that read and reset the counters of src/stats.
#include "consumer_api/peek.hpp"
#include "extension/owner_spi.hpp"
#include "extension/tenant.hpp"
#include "pg/exceptions.hpp"
#include "stats/shared_counters.hpp"

namespace outbox {

namespace {

// Returns a percentile of the latencies as float8; isnull if there are none.
Datum percentile_milliseconds(const stats::ConsumerCounts& counts, double part, bool& isnull)
{
    const double microseconds = latency::percentile(counts.latency, part);
    isnull = microseconds < 0;
    return Float8GetDatum(microseconds / 1000);
}

// Returns an array of bigint with one count for each power of two microseconds: latencies below it,
// and not below its half.
Datum latency_histogram(const stats::ConsumerCounts& counts)
{
    Datum sums[latency::power_count] = {};
    for (std::size_t i = 0; i < latency::bucket_count; ++i)
        sums[latency::power_of_bucket(i)] += counts.latency[i];
    return PointerGetDatum(construct_array(sums, latency::power_count, INT8OID, sizeof(int64),
                                           FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

} // namespace

} // namespace outbox

// Internal: counters per consumer of this database. Consumer 0 sums up consumers without a slot, of
// any database.
OUTBOX_SQL_FUNCTION(outbox_consumer_counts)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        InitMaterializedSRF(fcinfo, 0);
        const auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
        stats::ConsumerCounts counts;
        for (int i = 0; i < stats::consumer_slots; ++i) {
            if (!stats::read_consumer_counts(i, counts))
                continue;
            bool nulls[14] = {};
            Datum values[14] = {Int32GetDatum(counts.consumer),
                                Int64GetDatum(static_cast<int64>(counts.delivered)),
                                Int64GetDatum(static_cast<int64>(counts.failed)),
                                Int64GetDatum(static_cast<int64>(counts.dead)),
                                Int64GetDatum(static_cast<int64>(counts.bytes)),
                                Float8GetDatum(counts.per_second),
                                percentile_milliseconds(counts, 0.5, nulls[6]),
                                percentile_milliseconds(counts, 0.95, nulls[7]),
                                percentile_milliseconds(counts, 0.99, nulls[8]),
                                latency_histogram(counts),
                                Float8GetDatum(static_cast<double>(counts.latency_sum) / 1e6),
                                CStringGetTextDatum(counts.last_error),
                                TimestampTzGetDatum(counts.last_error_at),
                                TimestampTzGetDatum(counts.since)};
            nulls[11] = nulls[12] = counts.last_error_at == 0;
            tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
        }
        return Datum{0};
    });
}

// Internal: counters per event type. The row without a name sums up types without a slot.
OUTBOX_SQL_FUNCTION(outbox_event_counts)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        InitMaterializedSRF(fcinfo, 0);
        const auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
        stats::TypeCounts counts;
        for (int i = 0; i < stats::type_slots; ++i) {
            if (!stats::read_type_counts(i, counts))
                continue;
            bool nulls[6] = {};
            Datum values[6] = {CStringGetTextDatum(counts.name),
                               Int64GetDatum(static_cast<int64>(counts.enqueued)),
                               Int64GetDatum(static_cast<int64>(counts.delivered)),
                               Int64GetDatum(static_cast<int64>(counts.failed)),
                               Int64GetDatum(static_cast<int64>(counts.dead)),
                               TimestampTzGetDatum(counts.since)};
            nulls[0] = i == 0;
            tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
        }
        return Datum{0};
    });
}

// Sets all counters of this database to 0 at once; a rollback does not restore them. Raises an
// error in a session of a tenant.
OUTBOX_SQL_FUNCTION(outbox_stats_reset)
{
    return outbox::pg::sql_entry([&] {
        outbox::require_no_tenant("outbox_stats_reset()");
        outbox::stats::reset_counters();
        PG_RETURN_VOID();
    });
}

// Internal: frees the slots of consumers that are not in the array, and those of dropped databases.
OUTBOX_SQL_FUNCTION(outbox_release_stats_slots)
{
    return outbox::pg::sql_entry([&] {
        const auto* consumers = PG_GETARG_ARRAYTYPE_P(0);
        const auto count =
            static_cast<std::size_t>(ArrayGetNItems(ARR_NDIM(consumers), ARR_DIMS(consumers)));
        outbox::stats::free_unused_slots(
            {reinterpret_cast<const int32*>(ARR_DATA_PTR(consumers)), count});
        PG_RETURN_VOID();
    });
}

OUTBOX_SQL_FUNCTION(outbox_stats_overflowed)
{
    return outbox::pg::sql_entry([&] { PG_RETURN_BOOL(outbox::stats::has_overflowed()); });
}

// Internal: when the consumer's oldest unsettled event occurred; retries are left out.
OUTBOX_SQL_FUNCTION(outbox_oldest_unsettled)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        TupleDesc descriptor;
        if (get_call_result_type(fcinfo, nullptr, &descriptor) != TYPEFUNC_COMPOSITE)
            elog(ERROR, "outbox_oldest_unsettled() must return a row");
        const Datum name = PG_GETARG_DATUM(0);
        OldestEvent oldest = {};
        as_owner([&] { oldest = find_oldest_unsettled(name); });
        Datum values[] = {TimestampTzGetDatum(oldest.occurred_at), BoolGetDatum(oldest.is_exact)};
        bool nulls[] = {!oldest.found, false};
        return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls));
    });
}
