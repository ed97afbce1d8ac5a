#include "delivery/retry_queue.hpp"

#include "extension/owner_spi.hpp"
#include "pg/datum.hpp"

namespace outbox {

namespace {

#define MESSAGE_COLUMNS                                                                            \
    "xid, id, occurred_at, tenant_id, tracking_id, event_version, aggregate_type, aggregate_id,"   \
    " event_type, payload, metadata, trace_id"
#define MESSAGE_PARAMETERS "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12"
#define MESSAGE_TYPES                                                                              \
    XID8OID, INT8OID, TIMESTAMPTZOID, INT8OID, UUIDOID, INT2OID, TEXTOID, TEXTOID, TEXTOID,        \
        JSONBOID, JSONBOID, TEXTOID

// Parameters of a statement: the message's columns, then room for six more.
struct MessageParameters {
    Datum values[column_count + 6];
    char nulls[column_count + 6];

    explicit MessageParameters(const Message& message)
    {
        for (int i = 0; i < column_count + 6; ++i)
            nulls[i] = ' ';
        for (int i = 0; i < column_count; ++i) {
            values[i] = message.values[i];
            nulls[i] = message.nulls[i] ? 'n' : ' ';
        }
    }
};

// Inserts a message into _outbox.retries; without `error` last_error is NULL. ON CONFLICT DO
// NOTHING: after a seek the message may be in the table, and then it is delivered from there.
void insert_retry(int32 consumer, int32 consumer_partition, const Message& message, int attempts,
                  TimestampTz available_at, std::optional<Datum> error)
{
    static constinit Statement insert{
        "INSERT INTO _outbox.retries (" MESSAGE_COLUMNS
        ", consumer_id, partition, attempts, available_at, last_error)"
        " VALUES (" MESSAGE_PARAMETERS ", $13, $14, $15, $16, $17) ON CONFLICT DO NOTHING",
        {MESSAGE_TYPES, INT4OID, INT4OID, INT4OID, TIMESTAMPTZOID, TEXTOID}};
    MessageParameters parameters(message);
    parameters.values[12] = Int32GetDatum(consumer);
    parameters.values[13] = Int32GetDatum(consumer_partition);
    parameters.values[14] = Int32GetDatum(attempts);
    parameters.values[15] = TimestampTzGetDatum(available_at);
    parameters.values[16] = error.value_or(Datum{0});
    parameters.nulls[16] = error ? ' ' : 'n';
    insert.execute_with_latest_snapshot(parameters.values, parameters.nulls);
}

// Returns the ids in the first column of the last result, which must be in ascending order.
IdRanges selected_ids(uint64 count)
{
    pg::PallocVector<IdRange> ids;
    for (uint64 i = 0; i < count; ++i)
        append_id(ids, DatumGetInt64(ResultRow(i).get(1)));
    return ids.view();
}

// Sets available_at = `now` for the first remaining retry of an aggregate if it was blocked.
void unblock_next(int32 consumer, Datum aggregate_type, Datum aggregate_id, TimestampTz now)
{
    static constinit Statement update{
        "UPDATE _outbox.retries SET available_at = $4 WHERE consumer_id = $1 AND id ="
        " (SELECT id FROM _outbox.retries WHERE consumer_id = $1 AND aggregate_type = $2"
        " AND aggregate_id = $3 AND NOT redriven ORDER BY id LIMIT 1)"
        " AND available_at = 'infinity'",
        {INT4OID, TEXTOID, TEXTOID, TIMESTAMPTZOID}};
    const Datum values[] = {Int32GetDatum(consumer), aggregate_type, aggregate_id,
                            TimestampTzGetDatum(now)};
    update.execute_with_latest_snapshot(values);
}

} // namespace

bool is_aggregate_blocked(int32 consumer, const Message& message)
{
    static constinit Statement find{
        "SELECT FROM _outbox.retries WHERE consumer_id = $1 AND aggregate_type = $2"
        " AND aggregate_id = $3 AND id < $4 AND NOT redriven LIMIT 1",
        {INT4OID, TEXTOID, TEXTOID, INT8OID}};
    const Datum values[] = {Int32GetDatum(consumer), message.values[col_aggregate_type],
                            message.values[col_aggregate_id], message.values[col_id]};
    const bool found = find.execute_with_latest_snapshot(values) > 0;
    SPI_freetuptable(SPI_tuptable); // called for each message of a batch: results would add up
    return found;
}

bool has_blocked_aggregates(int32 consumer, int32 consumer_partition)
{
    static constinit Statement find{
        "SELECT FROM _outbox.retries WHERE consumer_id = $1 AND partition = $2"
        " AND NOT redriven LIMIT 1",
        {INT4OID, INT4OID}};
    const Datum values[] = {Int32GetDatum(consumer), Int32GetDatum(consumer_partition)};
    return find.execute_with_latest_snapshot(values) > 0;
}

void add_retry(int32 consumer, int32 consumer_partition, const Message& message, int attempts,
               TimestampTz available_at, Datum error)
{
    insert_retry(consumer, consumer_partition, message, attempts, available_at, error);
}

void add_blocked_message(int32 consumer, int32 consumer_partition, const Message& message,
                         int attempts)
{
    insert_retry(consumer, consumer_partition, message, attempts, DT_NOEND, std::nullopt);
}

void reschedule_retry(int32 consumer, Id id, int attempts, TimestampTz available_at, Datum error)
{
    static constinit Statement update{
        "UPDATE _outbox.retries SET attempts = $3, available_at = $4, last_error = $5"
        " WHERE consumer_id = $1 AND id = $2",
        {INT4OID, INT8OID, INT4OID, TIMESTAMPTZOID, TEXTOID}};
    const Datum values[] = {Int32GetDatum(consumer), Int64GetDatum(id), Int32GetDatum(attempts),
                            TimestampTzGetDatum(available_at), error};
    update.execute_with_latest_snapshot(values);
}

void block_messages_again(int32 consumer, IdRanges ids)
{
    static constinit Statement update{
        "UPDATE _outbox.retries SET available_at = 'infinity'"
        " WHERE consumer_id = $1 AND id = ANY ($2) AND available_at <> 'infinity'",
        {INT4OID, INT8ARRAYOID}};
    const Datum values[] = {Int32GetDatum(consumer), pg::to_id_array(ids)};
    update.execute_with_latest_snapshot(values);
}

void add_attempts(int32 consumer, IdRanges ids, int attempts)
{
    static constinit Statement update{"UPDATE _outbox.retries SET attempts = attempts + $3"
                                      " WHERE consumer_id = $1 AND id = ANY ($2)",
                                      {INT4OID, INT8ARRAYOID, INT4OID}};
    const Datum values[] = {Int32GetDatum(consumer), pg::to_id_array(ids), Int32GetDatum(attempts)};
    if (attempts > 0 && !ids.empty())
        update.execute_with_latest_snapshot(values);
}

void block_later_messages(int32 consumer, const Message& message)
{
    static constinit Statement update{
        "UPDATE _outbox.retries SET available_at = 'infinity' WHERE consumer_id = $1"
        " AND aggregate_type = $2 AND aggregate_id = $3 AND id > $4 AND NOT redriven"
        " AND available_at <> 'infinity'",
        {INT4OID, TEXTOID, TEXTOID, INT8OID}};
    const Datum values[] = {Int32GetDatum(consumer), message.values[col_aggregate_type],
                            message.values[col_aggregate_id], message.values[col_id]};
    update.execute_with_latest_snapshot(values);
}

void move_to_dead_letters(int32 consumer, const Message& message, int attempts, Datum error,
                          TimestampTz now)
{
    static constinit Statement insert{
        "INSERT INTO _outbox.dead_letters (" MESSAGE_COLUMNS
        ", consumer_id, attempts, last_error, died_at)"
        " VALUES (" MESSAGE_PARAMETERS ", $13, $14, $15, $16)"
        " ON CONFLICT (consumer_id, id) DO UPDATE SET attempts = excluded.attempts,"
        " last_error = excluded.last_error, died_at = excluded.died_at",
        {MESSAGE_TYPES, INT4OID, INT4OID, TEXTOID, TIMESTAMPTZOID}};
    MessageParameters parameters(message);
    parameters.values[12] = Int32GetDatum(consumer);
    parameters.values[13] = Int32GetDatum(attempts);
    parameters.values[14] = error;
    parameters.values[15] = TimestampTzGetDatum(now);
    insert.execute_with_latest_snapshot(parameters.values, parameters.nulls);
}

void remove_retries(int32 consumer, bool ordered, IdRanges ids, TimestampTz now)
{
    static constinit Statement remove{
        "WITH gone AS (DELETE FROM _outbox.retries WHERE consumer_id = $1"
        " AND id = ANY ($2) RETURNING aggregate_type, aggregate_id)"
        " SELECT DISTINCT aggregate_type, aggregate_id FROM gone",
        {INT4OID, INT8ARRAYOID}};
    const Datum values[] = {Int32GetDatum(consumer), pg::to_id_array(ids)};
    const uint64 count = remove.execute_with_latest_snapshot(values);
    if (!ordered)
        return;
    const SPITupleTable* rows = SPI_tuptable;
    for (uint64 i = 0; i < count; ++i) {
        bool isnull;
        unblock_next(consumer, SPI_getbinval(rows->vals[i], rows->tupdesc, 1, &isnull),
                     SPI_getbinval(rows->vals[i], rows->tupdesc, 2, &isnull), now);
    }
}

std::optional<TimestampTz> next_retry_time(int32 consumer, TimestampTz now)
{
    static constinit Statement find{
        "SELECT min(available_at) FROM _outbox.retries WHERE consumer_id = $1"
        " AND available_at > $2",
        {INT4OID, TIMESTAMPTZOID}};
    const Datum values[] = {Int32GetDatum(consumer), TimestampTzGetDatum(now)};
    find.execute_with_latest_snapshot(values);
    const auto first = ResultRow(0).find(1);
    return first ? std::optional<TimestampTz>(DatumGetTimestampTz(*first)) : std::nullopt;
}

std::span<const int32> due_consumer_partitions(int32 consumer, TimestampTz now)
{
    static constinit Statement find{
        "SELECT partition FROM _outbox.retries WHERE consumer_id = $1"
        " AND available_at <= $2 GROUP BY partition ORDER BY min(available_at)",
        {INT4OID, TIMESTAMPTZOID}};
    const Datum values[] = {Int32GetDatum(consumer), TimestampTzGetDatum(now)};
    pg::PallocVector<int32> consumer_partitions;
    const uint64 count = find.execute_with_latest_snapshot(values);
    for (uint64 i = 0; i < count; ++i)
        consumer_partitions.push(DatumGetInt32(ResultRow(i).get(1)));
    return consumer_partitions.view();
}

// SQL condition: the retry r is in one of these open batches. Batches from the log count, too:
// after a seek, one of them may contain a message that is then redriven.
#define IS_IN_OPEN_BATCH(tokens)                                                                   \
    "coalesce((SELECT range_agg(coalesce(l.remaining, b.ids)) FROM _outbox.leases l"               \
    " JOIN _outbox.batches b ON b.consumer_id = l.consumer_id AND b.token = l.token"               \
    " WHERE l.token = ANY (" tokens ") AND l.acked_at IS NULL AND l.superseded_by IS NULL)"        \
    " @> r.id, false)"

IdRanges due_retries(int32 consumer, std::span<const int64> open_tokens, TimestampTz now, int limit)
{
    static constinit Statement find{
        "SELECT id FROM (SELECT r.id FROM _outbox.retries r WHERE r.consumer_id = $1"
        " AND r.available_at <= $2 AND NOT " IS_IN_OPEN_BATCH("$3")

            " ORDER BY r.available_at, r.id LIMIT $4) due ORDER BY id",
        {INT4OID, TIMESTAMPTZOID, INT8ARRAYOID, INT4OID}};
    const Datum values[] = {Int32GetDatum(consumer), TimestampTzGetDatum(now),
                            pg::to_bigint_array(open_tokens), Int32GetDatum(limit)};
    return selected_ids(find.execute_with_latest_snapshot(values));
}

IdRanges due_with_blocked(int32 consumer, int32 consumer_partition,
                          std::span<const int64> open_tokens, TimestampTz now, int limit)
{
    // Only the first retry of an aggregate is ever due; redriven messages stand outside of that
    // order.
    static constinit Statement find{
        "WITH due AS MATERIALIZED (SELECT r.id, aggregate_type, aggregate_id, redriven"
        " FROM _outbox.retries r WHERE consumer_id = $1 AND available_at <= $3"
        " AND partition = $2 AND NOT " IS_IN_OPEN_BATCH(
            "$5") " ORDER BY available_at, r.id LIMIT $4)"
                  " SELECT id FROM (SELECT id FROM due WHERE redriven UNION ALL"
                  " SELECT chain.id FROM due CROSS JOIN LATERAL (SELECT r.id FROM "
                  "_outbox.retries r"
                  " WHERE r.consumer_id = $1 AND r.aggregate_type = due.aggregate_type"
                  " AND r.aggregate_id = due.aggregate_id AND NOT r.redriven ORDER BY r.id LIMIT "
                  "$4) chain"
                  " WHERE NOT due.redriven) ids ORDER BY id LIMIT $4",
        {INT4OID, INT4OID, TIMESTAMPTZOID, INT4OID, INT8ARRAYOID}};
    const Datum values[] = {Int32GetDatum(consumer), Int32GetDatum(consumer_partition),
                            TimestampTzGetDatum(now), Int32GetDatum(limit),
                            pg::to_bigint_array(open_tokens)};
    return selected_ids(find.execute_with_latest_snapshot(values));
}

RetryScan::RetryScan(int32 consumer, IdRanges ids)
{
    static constinit Statement find{"SELECT " MESSAGE_COLUMNS
                                    ", attempts, redriven FROM _outbox.retries"
                                    " WHERE consumer_id = $1 AND id = ANY ($2) ORDER BY id",
                                    {INT4OID, INT8ARRAYOID}};
    const Datum values[] = {Int32GetDatum(consumer), pg::to_id_array(ids)};
    count_ = find.execute_with_latest_snapshot(values);
    rows_ = SPI_tuptable;
}

const Message* RetryScan::next()
{
    if (next_row_ == count_)
        return nullptr;
    const HeapTuple row = rows_->vals[next_row_++];
    for (int column = 0; column < column_count; ++column)
        message_.values[column] =
            SPI_getbinval(row, rows_->tupdesc, column + 1, &message_.nulls[column]);
    bool isnull;
    failures_ = DatumGetInt32(SPI_getbinval(row, rows_->tupdesc, column_count + 1, &isnull));
    redriven_ = DatumGetBool(SPI_getbinval(row, rows_->tupdesc, column_count + 2, &isnull));
    return &message_;
}

} // namespace outbox
