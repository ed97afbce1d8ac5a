#include "consumer/batch_store.hpp"

#include "extension/locks.hpp"
#include "extension/relations.hpp"
#include "pg/datum.hpp"
#include "pg/heap_insert.hpp"
#include "pg/sequence.hpp"

extern "C" {
#include "access/transam.h"
#include "access/xlog.h"
}

namespace outbox {

namespace {

// Returns a bigint[] with from, upto and above of each range, as position_of() reads it.
Datum to_running_array(std::span<const RunningRange> running)
{
    pg::PallocVector<int64> numbers;
    for (const RunningRange& range : running) {
        numbers.push(static_cast<int64>(range.from));
        numbers.push(static_cast<int64>(range.upto));
        numbers.push(range.above);
    }
    return pg::to_bigint_array(numbers.view());
}

// The columns of _outbox.batches in the order of the install script.
constexpr pg::ColumnSpec batch_columns[] = {{"token", INT8OID},
                                            {"consumer_id", INT4OID},
                                            {"partition", INT4OID},
                                            {"attempts", INT4OID},
                                            {"deliveries", INT4OID},
                                            {"from_retries", BOOLOID},
                                            {"last_id", INT8OID},
                                            {"passed_seq", INT8OID},
                                            {"target_seq", INT8OID},
                                            {"ids", INT8MULTIRANGEOID},
                                            {"passed_running", INT8ARRAYOID},
                                            {"target_running", INT8ARRAYOID},
                                            {"open_tokens", INT8ARRAYOID}};

constexpr pg::ColumnSpec lease_columns[] = {{"token", INT8OID},
                                            {"root", INT8OID},
                                            {"first_id", INT8OID},
                                            {"consumer_id", INT4OID},
                                            {"partition", INT4OID},
                                            {"size", INT4OID},
                                            {"lease", INTERVALOID},
                                            {"claimed_at", TIMESTAMPTZOID},
                                            {"locked_until", TIMESTAMPTZOID},
                                            {"acked_at", TIMESTAMPTZOID},
                                            {"superseded_by", INT8OID},
                                            {"remaining", INT8MULTIRANGEOID},
                                            {"failed", INT8MULTIRANGEOID},
                                            {"worker", TEXTOID},
                                            {"tenant_id", INT8OID}};

enum : int {
    l_lease = 6,
    l_claimed_at,
    l_locked_until,
    l_acked_at,
    l_superseded_by,
    l_remaining,
    l_failed,
    l_worker,
    l_tenant_id
};

constinit pg::DirectTable lease_table{lease_columns};

// Inserts a row through the executor, for a table to which users have added a trigger or a column.
// `statement` is the INSERT, with one parameter per value.
void insert_by_statement(Statement& statement, int count, const Datum* values, const bool* nulls)
{
    char marks[Statement::max_parameters + 1] = {};
    for (int i = 0; i < count; ++i)
        marks[i] = nulls[i] ? 'n' : ' ';
    statement.execute(values, marks);
}

// Inserts a row of _outbox.batches. `progress` is nullptr unless it is the consumer's newest.
void insert_batch(int32 consumer, const Batch& batch, const Progress* progress)
{
    static constinit pg::DirectTable table{batch_columns};
    static constinit Statement insert{
        "INSERT INTO _outbox.batches (token, consumer_id, partition, attempts, deliveries,"
        " from_retries, last_id, passed_seq, target_seq, ids, passed_running, target_running,"
        " open_tokens) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
        {INT8OID, INT4OID, INT4OID, INT4OID, INT4OID, BOOLOID, INT8OID, INT8OID, INT8OID,
         INT8MULTIRANGEOID, INT8ARRAYOID, INT8ARRAYOID, INT8ARRAYOID}};
    enum : int {
        last_id = 6,
        passed_seq,
        target_seq,
        ids,
        passed_running,
        target_running,
        open_tokens
    };
    constexpr int count = std::size(batch_columns);
    Datum values[count] = {Int64GetDatum(batch.token),
                           Int32GetDatum(consumer),
                           Int32GetDatum(batch.consumer_partition),
                           Int32GetDatum(batch.attempts),
                           Int32GetDatum(batch.deliveries),
                           BoolGetDatum(batch.from_retries)};
    bool nulls[count] = {};
    values[ids] = pg::to_multirange(batch.ids);
    const bool has_target = progress != nullptr && progress->cursor.target;
    nulls[passed_seq] = nulls[passed_running] = nulls[open_tokens] = progress == nullptr;
    nulls[target_seq] = nulls[target_running] = nulls[last_id] = !has_target;
    if (progress != nullptr) {
        values[passed_seq] = Int64GetDatum(progress->cursor.passed.seq);
        values[passed_running] = to_running_array(progress->cursor.passed.running);
        values[open_tokens] = pg::to_bigint_array(progress->open_tokens);
    }
    if (has_target) {
        values[target_seq] = Int64GetDatum(progress->cursor.target->seq);
        values[target_running] = to_running_array(progress->cursor.target->running);
        values[last_id] = Int64GetDatum(progress->cursor.last_id);
    }
    if (!table.insert(extension_relations().batches, values, nulls))
        insert_by_statement(insert, count, values, nulls);
}

// Inserts a row of _outbox.leases. `holder` is nullptr for an unassigned batch.
void insert_lease(int32 consumer, const Batch& batch, const LeaseHolder* holder)
{
    static constinit Statement insert{
        "INSERT INTO _outbox.leases (token, root, first_id, consumer_id, partition, size,"
        " lease, claimed_at, locked_until, acked_at, superseded_by, remaining, failed, worker,"
        " tenant_id)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
        {INT8OID, INT8OID, INT8OID, INT4OID, INT4OID, INT4OID, INTERVALOID, TIMESTAMPTZOID,
         TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, INT8MULTIRANGEOID, INT8MULTIRANGEOID, TEXTOID,
         INT8OID}};
    constexpr int count = std::size(lease_columns);
    Datum values[count] = {Int64GetDatum(batch.token),
                           Int64GetDatum(batch.root_token),
                           Int64GetDatum(batch.ids.front().from),
                           Int32GetDatum(consumer),
                           Int32GetDatum(batch.consumer_partition),
                           Int32GetDatum(static_cast<int32>(count_ids(batch.ids)))};
    bool nulls[count] = {};
    nulls[l_acked_at] = nulls[l_superseded_by] = nulls[l_remaining] = nulls[l_failed] = true;
    nulls[l_lease] = nulls[l_claimed_at] = nulls[l_locked_until] = nulls[l_worker] =
        holder == nullptr;
    values[l_tenant_id] = Int64GetDatum(batch.tenant.value_or(0));
    nulls[l_tenant_id] = !batch.tenant;
    Interval length = {};
    if (holder != nullptr) {
        length = pg::to_interval(holder->lease);
        values[l_lease] = IntervalPGetDatum(&length);
        values[l_claimed_at] = TimestampTzGetDatum(holder->claimed_at);
        values[l_locked_until] = TimestampTzGetDatum(holder->claimed_at + holder->lease);
        values[l_worker] = holder->worker;
    }
    if (!lease_table.insert(extension_relations().leases, values, nulls))
        insert_by_statement(insert, count, values, nulls);
}

// The columns that batch_of() reads, of batch b and lease l.
#define BATCH_COLUMNS                                                                              \
    "b.token, b.partition, l.root, coalesce(l.remaining, b.ids), b.attempts, b.deliveries,"        \
    " b.from_retries"

// Returns the batch of a row with the columns of BATCH_COLUMNS. Its ids are palloc'd; tenant is not
// set.
Batch batch_of(const ResultRow& row)
{
    Batch batch;
    batch.token = DatumGetInt64(row.get(1));
    batch.consumer_partition = DatumGetInt32(row.get(2));
    batch.root_token = DatumGetInt64(row.get(3));
    batch.ids = pg::from_multirange(row.get(4));
    batch.attempts = DatumGetInt32(row.get(5));
    batch.deliveries = DatumGetInt32(row.get(6));
    batch.from_retries = DatumGetBool(row.get(7));
    return batch;
}

// Returns the batch in the first row of SPI_tuptable, or std::nullopt if `count` is 0. Frees SPI's
// result: one claim may run thousands of these statements.
std::optional<Batch> single_selected_batch(uint64 count)
{
    std::optional<Batch> batch;
    if (count > 0)
        batch = batch_of(ResultRow(0));
    SPI_freetuptable(SPI_tuptable);
    return batch;
}

} // namespace

// Batches of one page have consecutive tokens: one range scan of the index then replaces a search
// for each token.
pg::PallocVector<Lease> open_leases(std::span<const int64> tokens)
{
    static constinit Statement find_each{
        "SELECT token, root, partition, size, locked_until, tenant_id FROM _outbox.leases"
        " WHERE token = ANY ($1) AND acked_at IS NULL AND superseded_by IS NULL"
        " ORDER BY root, first_id",
        {INT8ARRAYOID}};
    static constinit Statement find_range{
        "SELECT token, root, partition, size, locked_until, tenant_id FROM _outbox.leases"
        " WHERE token BETWEEN $1 AND $2 AND acked_at IS NULL AND superseded_by IS NULL"
        " ORDER BY root, first_id",
        {INT8OID, INT8OID}};
    pg::PallocVector<Lease> leases;
    if (tokens.empty())
        return leases;
    pg::PallocVector<int64> sorted;
    for (const int64 token : tokens)
        sorted.push(token);
    std::ranges::sort(sorted);
    const int64 min_token = sorted[0];
    const int64 max_token = sorted[sorted.size() - 1];
    const bool is_dense = max_token - min_token < 2 * static_cast<int64>(tokens.size());
    const Datum range[] = {Int64GetDatum(min_token), Int64GetDatum(max_token)};
    const Datum each[] = {is_dense ? Datum{0} : pg::to_bigint_array(tokens)};
    const uint64 count = is_dense ? find_range.execute_with_latest_snapshot(range)
                                  : find_each.execute_with_latest_snapshot(each);
    for (uint64 i = 0; i < count; ++i) {
        const ResultRow row(i);
        const int64 token = DatumGetInt64(row.get(1));
        if (is_dense && !std::ranges::binary_search(sorted, token))
            continue; // of another consumer
        const auto locked_until = row.find(5);
        const auto tenant = row.find(6);
        leases.push({token, DatumGetInt64(row.get(2)), DatumGetInt32(row.get(3)),
                     DatumGetInt32(row.get(4)),
                     locked_until ? DatumGetTimestampTz(*locked_until) : 0, !locked_until,
                     tenant ? std::optional(DatumGetInt64(*tenant)) : std::nullopt});
    }
    return leases;
}

bool may_read_new(const Consumer& consumer, std::span<const Lease> leases)
{
    if (leases.size() >= max_open_leases)
        return false;
    if (!consumer.ordered || consumer.is_sink)
        return true;
    pg::PallocVector<bool> occupied;
    for (int32 i = 0; i < consumer.consumer_partitions; ++i)
        occupied.push(false);
    for (const Lease& lease : leases)
        if (lease.consumer_partition < consumer.consumer_partitions)
            occupied[static_cast<std::size_t>(lease.consumer_partition)] = true;
    for (const bool is_occupied : occupied)
        if (!is_occupied)
            return true;
    return false;
}

bool is_lease_being_changed(int64 token)
{
    const Relation leases = table_open(extension_relations().leases, AccessShareLock);
    list_free(RelationGetIndexList(leases)); // sets rd_pkindex
    const Relation index = index_open(leases->rd_pkindex, AccessShareLock);
    SnapshotData dirty;
    InitDirtySnapshot(dirty);
    ScanKeyData key;
    ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(token));
    TupleTableSlot* row = table_slot_create(leases, nullptr);
    const IndexScanDesc scan = pg::begin_index_scan(leases, index, &dirty, 1);
    index_rescan(scan, &key, 1, nullptr, 0);
    bool changing = false;
    while (!changing && index_getnext_slot(scan, ForwardScanDirection, row))
        changing = TransactionIdIsValid(dirty.xmin) || TransactionIdIsValid(dirty.xmax);
    index_endscan(scan);
    ExecDropSingleTupleTableSlot(row);
    index_close(index, NoLock);
    table_close(leases, NoLock);
    return changing;
}

void add_batch(int32 consumer, const Batch& batch, const LeaseHolder* holder)
{
    insert_batch(consumer, batch, nullptr);
    insert_lease(consumer, batch, holder);
}

void add_newest_batch(int32 consumer, const Batch& batch, const LeaseHolder* holder,
                      const Progress& progress)
{
    insert_batch(consumer, batch, &progress);
    insert_lease(consumer, batch, holder);
}

void add_cursor_row(int32 consumer, const Batch& batch, const Progress& progress)
{
    insert_batch(consumer, batch, &progress);
}

#define UNSETTLED                                                                                  \
    " FROM unnest((SELECT o.open_tokens FROM _outbox.batches o WHERE o.consumer_id = $1"           \
    " ORDER BY o.token DESC LIMIT 1)) newest (token)"                                              \
    " JOIN _outbox.leases l ON l.token = newest.token"                                             \
    " JOIN _outbox.batches b ON b.consumer_id = l.consumer_id AND b.token = l.token"               \
    " WHERE l.acked_at IS NULL AND l.superseded_by IS NULL AND NOT b.from_retries"

UnsettledBatches::UnsettledBatches(int32 consumer)
    : batch_memory_(
          AllocSetContextCreate(CurrentMemoryContext, "outbox batch", ALLOCSET_DEFAULT_SIZES))
{
    static constinit Statement find{"SELECT " BATCH_COLUMNS UNSETTLED, {INT4OID}};
    const Datum values[] = {Int32GetDatum(consumer)};
    const uint64 count = find.execute_with_latest_snapshot(values);
    for (uint64 i = 0; i < count; ++i)
        rows_.push(ResultRow(i));
}

std::optional<Batch> UnsettledBatches::next()
{
    MemoryContextReset(batch_memory_);
    if (next_row_ == rows_.size())
        return std::nullopt;
    const MemoryContext before = MemoryContextSwitchTo(batch_memory_);
    const Batch batch = batch_of(rows_[next_row_++]);
    MemoryContextSwitchTo(before);
    return batch;
}

std::optional<Id> min_unsettled_id(int32 consumer)
{
    static constinit Statement find{"SELECT min(lower(coalesce(l.remaining, b.ids)))" UNSETTLED,
                                    {INT4OID}};
    const Datum values[] = {Int32GetDatum(consumer)};
    find.execute_with_latest_snapshot(values);
    const auto min_id = ResultRow(0).find(1);
    return min_id ? std::optional(DatumGetInt64(*min_id)) : std::nullopt;
}

std::optional<Batch> read_open_batch(int64 token)
{
    static constinit Statement find{
        "SELECT " BATCH_COLUMNS " FROM _outbox.leases l"
        " JOIN _outbox.batches b ON b.consumer_id = l.consumer_id AND b.token = l.token"
        " WHERE l.token = $1 AND l.acked_at IS NULL AND l.superseded_by IS NULL",
        {INT8OID}};
    const Datum values[] = {Int64GetDatum(token)};
    return single_selected_batch(find.execute_with_latest_snapshot(values));
}

std::optional<Batch> lock_batch_for_takeover(int64 token, TimestampTz now)
{
    static constinit Statement lock{
        "SELECT " BATCH_COLUMNS " FROM _outbox.leases l"
        " JOIN _outbox.batches b ON b.consumer_id = l.consumer_id AND b.token = l.token"
        " WHERE l.token = $1 AND l.acked_at IS NULL AND l.superseded_by IS NULL"
        " AND (l.locked_until < $2 OR l.locked_until IS NULL) FOR UPDATE OF l SKIP LOCKED",
        {INT8OID, TIMESTAMPTZOID}};
    const Datum values[] = {Int64GetDatum(token), TimestampTzGetDatum(now)};
    return single_selected_batch(lock.execute_with_latest_snapshot(values));
}

void supersede_lease(int64 token, int64 successor)
{
    static constinit Statement update{
        "UPDATE _outbox.leases SET superseded_by = $2 WHERE token = $1", {INT8OID, INT8OID}};
    const Datum values[] = {Int64GetDatum(token), Int64GetDatum(successor)};
    update.execute_with_latest_snapshot(values);
}

std::optional<Batch> assign_batch_to_worker(int64 token, const LeaseHolder& holder)
{
    static constinit Statement assign{
        "UPDATE _outbox.leases l SET worker = $2, claimed_at = $3, lease = $4,"
        " locked_until = $3 + $4"
        " FROM _outbox.batches b WHERE b.consumer_id = l.consumer_id AND b.token = l.token"
        " AND l.token = (SELECT token FROM _outbox.leases WHERE token = $1"
        " AND locked_until IS NULL AND acked_at IS NULL AND superseded_by IS NULL"
        " FOR UPDATE SKIP LOCKED) RETURNING " BATCH_COLUMNS,
        {INT8OID, TEXTOID, TIMESTAMPTZOID, INTERVALOID}};
    const Interval lease = pg::to_interval(holder.lease);
    const Datum values[] = {Int64GetDatum(token), holder.worker,
                            TimestampTzGetDatum(holder.claimed_at), IntervalPGetDatum(&lease)};
    return single_selected_batch(assign.execute_with_latest_snapshot(values));
}

void settle_lease(int64 token, TimestampTz now)
{
    static constinit Statement update{
        "UPDATE _outbox.leases SET acked_at = $2, remaining = NULL WHERE token = $1",
        {INT8OID, TIMESTAMPTZOID}};
    const Datum values[] = {Int64GetDatum(token), TimestampTzGetDatum(now)};
    const pg::ColumnChange changes[] = {{l_acked_at, values[1], false}, {l_remaining, 0, true}};
    if (!lease_table.update(extension_relations().leases, token, changes))
        update.execute_with_latest_snapshot(values);
}

void remove_from_batch(int64 token, IdRanges remaining, IdRanges failed)
{
    static constinit Statement update{"UPDATE _outbox.leases SET remaining = $2,"
                                      " failed = coalesce(failed, '{}') + $3 WHERE token = $1",
                                      {INT8OID, INT8MULTIRANGEOID, INT8MULTIRANGEOID}};
    const Datum values[] = {Int64GetDatum(token), pg::to_multirange(remaining),
                            pg::to_multirange(failed)};
    update.execute_with_latest_snapshot(values);
}

} // namespace outbox
