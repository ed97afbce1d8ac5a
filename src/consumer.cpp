#include "consumer.hpp"

#include "pg/guard.hpp"
#include "pg/guc.hpp"
#include "pg/spi.hpp"
#include "pg/values.hpp"

namespace outbox {

namespace {

bool is_among(std::span<const Datum> texts, Datum text)
{
    const std::string_view wanted = pg::to_view(text);
    for (const Datum one : texts)
        if (pg::to_view(one) == wanted)
            return true;
    return false;
}

std::span<const Datum> texts(std::optional<Datum> array, const char* name)
{
    return array ? pg::from_text_array(*array, name) : std::span<const Datum>{};
}

constexpr int64 microseconds_per_millisecond = 1000;

int64 interval_or(std::optional<Datum> interval, int milliseconds)
{
    return interval ? pg::to_microseconds(*DatumGetIntervalP(*interval))
                    : milliseconds * microseconds_per_millisecond;
}

// The columns of the query in read_consumer().
enum : int {
    q_id = 1,
    q_kind,
    q_ordered,
    q_partitions,
    q_paused,
    q_event_types,
    q_aggregate_types,
    q_tenant_id,
    q_max_attempts,
    q_immediate_retries,
    q_backoff_base,
    q_backoff_max,
    q_backoff_jitter,
    q_passed_seq,
    q_passed_running,
    q_target_seq,
    q_target_running,
    q_last_id,
    q_open_tokens,
    q_has_retries,
    q_has_due_retries
};

Filter filter_of(const pg::Row& row)
{
    Filter filter;
    filter.event_types = texts(row.find(q_event_types), "event_types");
    filter.aggregate_types = texts(row.find(q_aggregate_types), "aggregate_types");
    if (const auto tenant = row.find(q_tenant_id))
        filter.tenant_id = DatumGetInt64(*tenant);
    return filter;
}

RetryPolicy policy_of(const pg::Row& row)
{
    const auto number = [&](int column, int otherwise) {
        const auto value = row.find(column);
        return value ? DatumGetInt32(*value) : otherwise;
    };
    const auto jitter = row.find(q_backoff_jitter);
    return {number(q_max_attempts, settings::max_attempts),
            number(q_immediate_retries, settings::immediate_retries),
            interval_or(row.find(q_backoff_base), settings::backoff_base),
            interval_or(row.find(q_backoff_max), settings::backoff_max),
            jitter ? DatumGetFloat8(*jitter) : settings::backoff_jitter};
}

Consumer consumer_of(const pg::Row& row)
{
    Consumer consumer;
    consumer.id = DatumGetInt32(row.get(q_id));
    consumer.is_sink = pg::to_view(row.get(q_kind)) != "worker";
    consumer.ordered = DatumGetBool(row.get(q_ordered));
    consumer.partitions = DatumGetInt32(row.get(q_partitions));
    consumer.paused = DatumGetBool(row.get(q_paused));
    consumer.filter = filter_of(row);
    consumer.policy = policy_of(row);
    return consumer;
}

// bigint[] with three numbers per range, as written by to_running_array().
Position position_of(Datum seq, Datum running)
{
    const std::span<const int64> numbers = pg::from_bigint_array(running, "running", INT_MAX);
    if (numbers.size() % 3 != 0)
        elog(ERROR, "a cursor has %zu numbers where there should be three for each range",
             numbers.size());
    const std::size_t count = numbers.size() / 3;
    auto* ranges = static_cast<Running*>(palloc(sizeof(Running) * Max(count, std::size_t{1})));
    for (std::size_t i = 0; i < count; ++i)
        ranges[i] = {static_cast<Xid>(numbers[3 * i]), static_cast<Xid>(numbers[3 * i + 1]),
                     numbers[3 * i + 2]};
    return {DatumGetInt64(seq), {ranges, count}};
}

Progress progress_of(const pg::Row& row)
{
    Progress progress;
    progress.cursor.passed = position_of(row.get(q_passed_seq), row.get(q_passed_running));
    if (const auto seq = row.find(q_target_seq)) {
        progress.cursor.target = position_of(*seq, row.get(q_target_running));
        progress.cursor.last_id = DatumGetInt64(row.get(q_last_id));
    }
    progress.open_tokens = pg::from_bigint_array(row.get(q_open_tokens), "open_tokens", INT_MAX);
    return progress;
}

} // namespace

bool Filter::takes(const Message& message) const
{
    return (!tenant_id || *tenant_id == DatumGetInt64(message.values[col_tenant_id])) &&
           (event_types.empty() || is_among(event_types, message.values[col_event_type])) &&
           (aggregate_types.empty() ||
            is_among(aggregate_types, message.values[col_aggregate_type]));
}

int32 Consumer::partition_of(const Message& message) const
{
    return outbox::partition_of(message.values[col_aggregate_type],
                                message.values[col_aggregate_id], partitions);
}

int32 partition_of(Datum aggregate_type, Datum aggregate_id, int32 partitions)
{
    if (partitions == 1)
        return 0;
    uint64 hash = 0;
    for (const Datum part : {aggregate_type, aggregate_id}) {
        const std::string_view bytes = pg::to_view(part);
        hash =
            DatumGetUInt64(hash_any_extended(reinterpret_cast<const unsigned char*>(bytes.data()),
                                             static_cast<int>(bytes.size()), hash));
    }
    return static_cast<int32>(hash % static_cast<uint64>(partitions));
}

Datum checked_consumer_name(std::optional<Datum> name)
{
    if (!name)
        ereport(ERROR,
                (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("consumer must not be NULL")));
    return *name;
}

ConsumerState read_consumer(Datum name)
{
    static constinit pg::Statement find{
        "SELECT c.consumer_id, c.kind, c.ordered, c.partitions, c.paused, c.event_types,"
        " c.aggregate_types, c.tenant_id, c.max_attempts, c.immediate_retries, c.backoff_base,"
        " c.backoff_max, c.backoff_jitter, b.passed_seq, b.passed_running, b.target_seq,"
        " b.target_running, b.last_id, b.open_tokens,"
        " EXISTS (SELECT FROM @schema@.outbox_retries r WHERE r.consumer_id = c.consumer_id),"
        " EXISTS (SELECT FROM @schema@.outbox_retries r WHERE r.consumer_id = c.consumer_id"
        " AND r.available_at <= $2)"
        " FROM @schema@.outbox_consumers c, LATERAL (SELECT * FROM @schema@.outbox_batches b"
        " WHERE b.consumer_id = c.consumer_id ORDER BY b.token DESC LIMIT 1) b"
        " WHERE c.name = $1",
        {TEXTOID, TIMESTAMPTZOID}};
    const Datum values[] = {name, TimestampTzGetDatum(GetCurrentTimestamp())};
    if (find.execute_now(values) == 0) {
        const std::string_view text = pg::to_view(name);
        ereport(ERROR,
                (errcode(ERRCODE_UNDEFINED_OBJECT),
                 errmsg("consumer \"%.*s\" does not exist",
                        pg_mbcliplen(text.data(), static_cast<int>(text.size()), NAMEDATALEN),
                        text.data()),
                 errhint("Create it with outbox_create_consumer().")));
    }
    const pg::Row row(0);
    return {consumer_of(row), progress_of(row), DatumGetBool(row.get(q_has_retries)),
            DatumGetBool(row.get(q_has_due_retries))};
}

} // namespace outbox

namespace {

// The cursor in a row of outbox_batches. Rows that are not the newest of a consumer have none.
outbox::Cursor cursor_argument(HeapTupleHeader batch)
{
    const auto find = [&](const char* column) {
        bool isnull;
        const Datum value = GetAttributeByName(batch, column, &isnull);
        return isnull ? std::nullopt : std::optional<Datum>(value);
    };
    const auto position = [&](const char* seq, const char* running) {
        const auto value = find(seq);
        const auto array = find(running);
        return value && array ? std::optional(outbox::position_of(*value, *array)) : std::nullopt;
    };
    outbox::Cursor cursor;
    cursor.passed = position("passed_seq", "passed_running").value_or(outbox::Position{});
    cursor.target = position("target_seq", "target_running");
    cursor.last_id = DatumGetInt64(find("last_id").value_or(Int64GetDatum(0)));
    return cursor;
}

} // namespace

OUTBOX_SQL_FUNCTION(outbox_has_passed)
{
    return outbox::pg::entry([&] {
        const outbox::Cursor cursor = cursor_argument(PG_GETARG_HEAPTUPLEHEADER(0));
        const auto xid = U64FromFullTransactionId(DatumGetFullTransactionId(PG_GETARG_DATUM(1)));
        PG_RETURN_BOOL(cursor.has_passed(xid, PG_GETARG_INT64(2)));
    });
}

OUTBOX_SQL_FUNCTION(outbox_known_upto)
{
    return outbox::pg::entry(
        [&] { PG_RETURN_INT64(cursor_argument(PG_GETARG_HEAPTUPLEHEADER(0)).known_upto()); });
}

OUTBOX_SQL_FUNCTION(outbox_partition_of)
{
    return outbox::pg::entry([&] {
        PG_RETURN_INT32(
            outbox::partition_of(PG_GETARG_DATUM(0), PG_GETARG_DATUM(1), PG_GETARG_INT32(2)));
    });
}
