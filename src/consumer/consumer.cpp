#include "consumer/consumer.hpp"

#include "extension/guc.hpp"
#include "extension/relations.hpp"
#include "extension/tenant.hpp"
#include "pg/datum.hpp"
#include "pg/exceptions.hpp"
#include "pg/index_scan.hpp"

namespace outbox {

namespace {

// Returns whether an element of the array has the same bytes as the text.
bool contains_text(std::span<const Datum> text_array, Datum text)
{
    const std::string_view wanted = pg::to_view(text);
    for (const Datum one : text_array)
        if (pg::to_view(one) == wanted)
            return true;
    return false;
}

// Returns the elements of a text[], none for NULL. `name` is for the error about a NULL element.
std::span<const Datum> text_array(std::optional<Datum> array, const char* name)
{
    return array ? pg::from_text_array(*array, name) : std::span<const Datum>{};
}

constexpr int64 us_per_ms = 1000;

// Returns the interval in microseconds, or the default, given in milliseconds, for NULL.
int64 interval_or_default(std::optional<Datum> interval, int milliseconds)
{
    return interval ? pg::to_microseconds(*DatumGetIntervalP(*interval)) : milliseconds * us_per_ms;
}

// The columns to read of _outbox.consumers; the first is the search key.
constexpr pg::ColumnSpec consumer_columns[] = {{"name", TEXTOID},
                                               {"consumer_id", INT4OID},
                                               {"kind", TEXTOID},
                                               {"ordered", BOOLOID},
                                               {"partitions", INT4OID},
                                               {"paused", BOOLOID},
                                               {"event_types", TEXTARRAYOID},
                                               {"aggregate_types", TEXTARRAYOID},
                                               {"tenant_id", INT8OID},
                                               {"max_attempts", INT4OID},
                                               {"immediate_retries", INT4OID},
                                               {"backoff_base", INTERVALOID},
                                               {"backoff_max", INTERVALOID},
                                               {"backoff_jitter", FLOAT8OID},
                                               {"fair", BOOLOID},
                                               {"payload_versions", JSONBOID}};
enum : int {
    c_id = 1,
    c_kind,
    c_ordered,
    c_partitions,
    c_paused,
    c_event_types,
    c_aggregate_types,
    c_tenant_id,
    c_max_attempts,
    c_immediate_retries,
    c_backoff_base,
    c_backoff_max,
    c_backoff_jitter,
    c_fair,
    c_payload_versions
};
using ConsumerRow = pg::StoredRow<std::size(consumer_columns)>;

// The columns to read of a consumer's newest row in _outbox.batches.
constexpr pg::ColumnSpec progress_columns[] = {
    {"consumer_id", INT4OID}, {"token", INT8OID},
    {"passed_seq", INT8OID},  {"passed_running", INT8ARRAYOID},
    {"target_seq", INT8OID},  {"target_running", INT8ARRAYOID},
    {"last_id", INT8OID},     {"open_tokens", INT8ARRAYOID}};
enum : int {
    b_passed_seq = 2,
    b_passed_running,
    b_target_seq,
    b_target_running,
    b_last_id,
    b_open_tokens
};
using ProgressRow = pg::StoredRow<std::size(progress_columns)>;

// Returns the only tenant whose messages the consumer gets; std::nullopt: all tenants.
std::optional<int64> tenant_of(const ConsumerRow& row)
{
    const auto tenant = row.find(c_tenant_id);
    return tenant ? std::optional(DatumGetInt64(*tenant)) : std::nullopt;
}

Filter filter_of(const ConsumerRow& row)
{
    Filter filter;
    filter.event_types = text_array(row.find(c_event_types), "event_types");
    filter.aggregate_types = text_array(row.find(c_aggregate_types), "aggregate_types");
    filter.tenant_id = tenant_of(row);
    return filter;
}

// Returns the retry policy of a consumer. A setting (outbox.max_attempts, ...) replaces each column
// that is NULL.
RetryPolicy retry_policy_of(const ConsumerRow& row)
{
    const auto number = [&](int column, int otherwise) {
        const auto value = row.find(column);
        return value ? DatumGetInt32(*value) : otherwise;
    };
    const auto jitter = row.find(c_backoff_jitter);
    return {number(c_max_attempts, settings::max_attempts),
            number(c_immediate_retries, settings::immediate_retries),
            interval_or_default(row.find(c_backoff_base), settings::backoff_base),
            interval_or_default(row.find(c_backoff_max), settings::backoff_max),
            jitter ? DatumGetFloat8(*jitter) : settings::backoff_jitter};
}

// Returns the entries of payload_versions, none for NULL. A value that is no number, such as
// "stored", becomes as_stored.
std::span<const WantedVersion> wanted_versions_of(const ConsumerRow& row)
{
    const auto versions = row.find(c_payload_versions);
    if (!versions)
        return {};
    pg::PallocVector<WantedVersion> wanted;
    JsonbIterator* at = JsonbIteratorInit(&DatumGetJsonbP(*versions)->root);
    JsonbValue value;
    std::string_view type;
    for (;;) {
        const JsonbIteratorToken token = JsonbIteratorNext(&at, &value, true);
        if (token == WJB_DONE)
            return wanted.view();
        if (token == WJB_KEY)
            type = {value.val.string.val, static_cast<std::size_t>(value.val.string.len)};
        else if (token == WJB_VALUE)
            wanted.push({type, value.type == jbvNumeric
                                   ? DatumGetInt32(DirectFunctionCall1(
                                         numeric_int4, NumericGetDatum(value.val.numeric)))
                                   : WantedVersion::as_stored});
    }
}

Consumer consumer_of(const ConsumerRow& row)
{
    Consumer consumer;
    consumer.id = DatumGetInt32(row.get(c_id));
    consumer.is_sink = pg::to_view(row.get(c_kind)) != "worker";
    consumer.ordered = DatumGetBool(row.get(c_ordered));
    consumer.consumer_partitions = DatumGetInt32(row.get(c_partitions));
    consumer.paused = DatumGetBool(row.get(c_paused));
    consumer.fair = DatumGetBool(row.get(c_fair));
    consumer.filter = filter_of(row);
    consumer.retry_policy = retry_policy_of(row);
    consumer.wanted_versions = wanted_versions_of(row);
    return consumer;
}

// Makes a position from a bigint[] with three numbers per range, as to_running_array() writes it.
// Raises data_corrupted for another count of numbers.
Position position_of(Datum seq, Datum running)
{
    const std::span<const int64> numbers = pg::from_bigint_array(running, "running", INT_MAX);
    if (numbers.size() % 3 != 0)
        ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
                        errmsg("cursor is corrupted: %zu numbers instead of three for each range",
                               numbers.size()),
                        errhint("Write to _outbox.batches only with the functions of outbox.")));
    const std::size_t count = numbers.size() / 3;
    auto* ranges =
        static_cast<RunningRange*>(palloc(sizeof(RunningRange) * Max(count, std::size_t{1})));
    for (std::size_t i = 0; i < count; ++i)
        ranges[i] = {static_cast<Xid>(numbers[3 * i]), static_cast<Xid>(numbers[3 * i + 1]),
                     numbers[3 * i + 2]};
    return {DatumGetInt64(seq), {ranges, count}};
}

// Returns the progress in a newest row of _outbox.batches. Raises data_corrupted like
// position_of().
Progress progress_of(const ProgressRow& row)
{
    Progress progress;
    progress.cursor.passed = position_of(row.get(b_passed_seq), row.get(b_passed_running));
    if (const auto seq = row.find(b_target_seq)) {
        progress.cursor.target = position_of(*seq, row.get(b_target_running));
        progress.cursor.last_id = DatumGetInt64(row.get(b_last_id));
    }
    progress.open_tokens = pg::from_bigint_array(row.get(b_open_tokens), "open_tokens", INT_MAX);
    return progress;
}

} // namespace

bool Filter::matches(const Message& message) const
{
    return (!tenant_id || *tenant_id == DatumGetInt64(message.values[col_tenant_id])) &&
           (event_types.empty() || contains_text(event_types, message.values[col_event_type])) &&
           (aggregate_types.empty() ||
            contains_text(aggregate_types, message.values[col_aggregate_type]));
}

int32 Consumer::consumer_partition_of(const Message& message) const
{
    return outbox::consumer_partition_of(message.values[col_aggregate_type],
                                         message.values[col_aggregate_id], consumer_partitions);
}

int32 consumer_partition_of(Datum aggregate_type, Datum aggregate_id, int32 consumer_partitions)
{
    if (consumer_partitions == 1)
        return 0;
    uint64 hash = 0;
    for (const Datum part : {aggregate_type, aggregate_id}) {
        const std::string_view bytes = pg::to_view(part);
        hash =
            DatumGetUInt64(hash_any_extended(reinterpret_cast<const unsigned char*>(bytes.data()),
                                             static_cast<int>(bytes.size()), hash));
    }
    return static_cast<int32>(hash % static_cast<uint64>(consumer_partitions));
}

Datum checked_consumer_name(std::optional<Datum> name)
{
    if (!name)
        ereport(ERROR,
                (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("consumer must not be NULL")));
    return *name;
}

namespace {

// Raises undefined_object.
[[noreturn]] void raise_unknown_consumer(Datum name)
{
    const std::string_view text = pg::to_view(name);
    ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
                    errmsg("consumer \"%.*s\" does not exist",
                           pg_mbcliplen(text.data(), static_cast<int>(text.size()), NAMEDATALEN),
                           text.data()),
                    errhint("Create it with outbox_create_consumer().")));
    pg_unreachable();
}

// Reads the consumer, its newest batch and its next retry. Raises undefined_object like
// read_consumer().
ConsumerState read_consumer_state(Snapshot snapshot, Datum name)
{
    static constinit pg::IndexedTable consumers{consumer_columns, 1};
    static constinit pg::IndexedTable batches{progress_columns, 2};
    static constexpr pg::ColumnSpec retry_columns[] = {{"consumer_id", INT4OID},
                                                       {"available_at", TIMESTAMPTZOID}};
    static constinit pg::IndexedTable retries{retry_columns, 2};

    const ExtensionRelations objects = extension_relations();
    const pg::IndexKey by_name[] = {{TEXTOID, name}};
    const auto row = consumers.find_first(objects.consumers, snapshot, by_name);
    if (!row || !can_see_tenant(tenant_of(*row)))
        raise_unknown_consumer(name);
    const pg::IndexKey by_id[] = {{INT4OID, row->get(c_id)}};
    const auto newest = batches.find_last(objects.batches, snapshot, by_id);
    if (!newest)
        raise_unknown_consumer(name);
    const auto next_retry = retries.find_first(objects.retries, snapshot, by_id);
    const bool is_due =
        next_retry && DatumGetTimestampTz(next_retry->get(1)) <= GetCurrentTimestamp();
    return {consumer_of(*row), progress_of(*newest), next_retry.has_value(), is_due};
}

} // namespace

ConsumerState read_consumer(Datum name)
{
    return pg::with_latest_snapshot(
        [&](Snapshot snapshot) { return read_consumer_state(snapshot, name); });
}

} // namespace outbox

namespace {

// Returns the cursor in a row of _outbox.batches; an empty one if it was never a consumer's newest.
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

// Internal: returns whether the cursor in a row of _outbox.batches has passed the row of this xid
// and id.
OUTBOX_SQL_FUNCTION(outbox_has_passed)
{
    return outbox::pg::sql_entry([&] {
        const outbox::Cursor cursor = cursor_argument(PG_GETARG_HEAPTUPLEHEADER(0));
        const auto xid = U64FromFullTransactionId(DatumGetFullTransactionId(PG_GETARG_DATUM(1)));
        PG_RETURN_BOOL(cursor.has_passed(xid, PG_GETARG_INT64(2)));
    });
}

// Internal: returns the id up to which no late commit is possible for the cursor in a row of
// _outbox.batches.
OUTBOX_SQL_FUNCTION(outbox_known_upto)
{
    return outbox::pg::sql_entry(
        [&] { PG_RETURN_INT64(cursor_argument(PG_GETARG_HEAPTUPLEHEADER(0)).known_upto()); });
}

// Internal: returns the consumer partition of an aggregate. Raises invalid_parameter_value for a
// number of partitions below 1.
OUTBOX_SQL_FUNCTION(outbox_partition_of)
{
    return outbox::pg::sql_entry([&] {
        const int32 consumer_partitions = PG_GETARG_INT32(2);
        if (consumer_partitions < 1)
            ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                            errmsg("partitions must be at least 1, not %d", consumer_partitions)));
        PG_RETURN_INT32(outbox::consumer_partition_of(PG_GETARG_DATUM(0), PG_GETARG_DATUM(1),
                                                      consumer_partitions));
    });
}
