#include "enqueue/dedup.hpp"

#include "extension/guc.hpp"
#include "extension/locks.hpp"
#include "extension/owner_spi.hpp"
#include "extension/relations.hpp"
#include "pg/catalog_generation.hpp"
#include "pg/heap_insert.hpp"

namespace outbox {

namespace {

// The columns of _outbox.dedup_keys in the order of the install script.
enum Column { col_tenant_id, col_expires_at, col_tracking_id, col_dedup_key, column_count };

constexpr pg::ColumnSpec dedup_key_columns[column_count] = {
    {"tenant_id", INT8OID},
    {"expires_at", TIMESTAMPTZOID},
    {"tracking_id", UUIDOID},
    {"dedup_key", TEXTOID},
};

// Returns whether the table has a valid primary key on (tenant_id, dedup_key).
bool has_expected_primary_key(Relation keys)
{
    list_free(RelationGetIndexList(keys)); // sets rd_pkindex
    if (!OidIsValid(keys->rd_pkindex))
        return false;
    const Relation index = index_open(keys->rd_pkindex, AccessShareLock);
    const int2vector& columns = index->rd_index->indkey;
    const bool expected = index->rd_index->indisvalid && index->rd_index->indnkeyatts == 2 &&
                          columns.values[0] == col_tenant_id + 1 &&
                          columns.values[1] == col_dedup_key + 1;
    index_close(index, NoLock);
    return expected;
}

// Returns whether _outbox.dedup_keys is as the extension created it, so that rows may bypass the
// executor. Cached per backend until a relcache invalidation.
bool allows_direct_insert(Relation keys)
{
    static uint64 known_generation = PG_UINT64_MAX;
    static bool known_answer = false;
    if (known_generation != pg::catalog_generation()) {
        const uint64 generation = pg::catalog_generation();
        known_answer = pg::has_columns(keys, dedup_key_columns, column_count) &&
                       pg::allows_direct_write(keys) && has_expected_primary_key(keys);
        known_generation = generation;
    }
    return known_answer;
}

// Returns the end of the window of a key that is claimed now, by outbox.dedup_window.
TimestampTz expiry_time(TimestampTz now)
{
    return now + static_cast<int64>(settings::dedup_window) * USECS_PER_SEC;
}

// The event that has claimed a key, and the end of the key's window.
struct DedupRow {
    TimestampTz expires_at;
    pg_uuid_t tracking_id;
};

// Mirrors ExecCheckTupleVisible(): raises serialization_failure if the transaction has one snapshot
// for all statements and that does not show the row.
void check_visible(Relation keys, TupleTableSlot* row)
{
    if (!IsolationUsesXactSnapshot() ||
        table_tuple_satisfies_snapshot(keys, row, GetActiveSnapshot()))
        return;
    bool isnull;
    const Datum xmin = slot_getsysattr(row, MinTransactionIdAttributeNumber, &isnull);
    if (TransactionIdIsCurrentTransactionId(DatumGetTransactionId(xmin)))
        return;
    ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                    errmsg("could not serialize access due to a concurrent enqueue with the same "
                           "dedup_key"),
                    errhint("Retry the transaction.")));
}

// Reads a row of _outbox.dedup_keys from its slot. Raises serialization_failure like
// check_visible().
DedupRow read_dedup_row(Relation keys, TupleTableSlot* row)
{
    check_visible(keys, row);
    bool isnull;
    return {DatumGetTimestampTz(slot_getattr(row, col_expires_at + 1, &isnull)),
            *DatumGetUUIDP(slot_getattr(row, col_tracking_id + 1, &isnull))};
}

// Returns the row of the event's key, or std::nullopt. Searches the primary key with a dirty
// snapshot, as check_exclusion_or_unique_constraint() does. If another transaction is inserting or
// deleting the row, returns std::nullopt and that xid in `in_progress_xid`, which is otherwise
// invalid.
std::optional<DedupRow> find_dedup_row(const pg::TableWriter& writer, const Event& event,
                                       TransactionId* in_progress_xid)
{
    const Relation keys = writer.relation;
    const Relation index = writer.result->ri_IndexRelationDescs[pg::primary_key_index(writer)];
    ScanKeyData scan_keys[2];
    ScanKeyEntryInitialize(&scan_keys[0], 0, 1, BTEqualStrategyNumber, InvalidOid, InvalidOid,
                           F_INT8EQ, Int64GetDatum(event.tenant_id));
    ScanKeyEntryInitialize(&scan_keys[1], 0, 2, BTEqualStrategyNumber, InvalidOid,
                           index->rd_indcollation[1], F_TEXTEQ, *event.dedup_key);

    SnapshotData dirty;
    InitDirtySnapshot(dirty);
    std::optional<DedupRow> existing;
    *in_progress_xid = InvalidTransactionId;
    TupleTableSlot* row = table_slot_create(keys, nullptr);
    const IndexScanDesc scan = pg::begin_index_scan(keys, index, &dirty, 2);
    index_rescan(scan, scan_keys, 2, nullptr, 0);
    if (index_getnext_slot(scan, ForwardScanDirection, row)) {
        *in_progress_xid = TransactionIdIsValid(dirty.xmin) ? dirty.xmin : dirty.xmax;
        if (!TransactionIdIsValid(*in_progress_xid))
            existing = read_dedup_row(keys, row);
    }
    index_endscan(scan);
    ExecDropSingleTupleTableSlot(row);
    return existing;
}

// Updates the key's row in _outbox.dedup_keys if the key has expired. Returns whether it is now the
// event's. Concurrent callers wait for the row lock and then find that the key has not expired.
bool take_over_expired_key(const Event& event, TimestampTz now)
{
    uint64 updated = 0;
    as_owner([&] {
        static constinit Statement take_over{
            "UPDATE _outbox.dedup_keys SET tracking_id = $3, expires_at = $4"
            " WHERE tenant_id = $1 AND dedup_key = $2 AND expires_at <= $5",
            {INT8OID, TEXTOID, UUIDOID, TIMESTAMPTZOID, TIMESTAMPTZOID}};
        const Datum values[] = {Int64GetDatum(event.tenant_id), *event.dedup_key,
                                UUIDPGetDatum(&event.tracking_id),
                                TimestampTzGetDatum(expiry_time(now)), TimestampTzGetDatum(now)};
        updated = take_over.execute(values);
    });
    return updated == 1;
}

// Stores the event's row of _outbox.dedup_keys in the slot, as a virtual tuple.
void fill_slot(TupleTableSlot* slot, const Event& event, TimestampTz now)
{
    slot->tts_values[col_tenant_id] = Int64GetDatum(event.tenant_id);
    slot->tts_values[col_expires_at] = TimestampTzGetDatum(expiry_time(now));
    slot->tts_values[col_tracking_id] = UUIDPGetDatum(&event.tracking_id);
    slot->tts_values[col_dedup_key] = *event.dedup_key;
    for (int i = 0; i < column_count; ++i)
        slot->tts_isnull[i] = false;
    ExecStoreVirtualTuple(slot);
}

// Returns a hash of tenant and key, for lock_key().
uint64 dedup_key_hash(const Event& event)
{
    const text* key = DatumGetTextPP(*event.dedup_key);
    return DatumGetUInt64(
        hash_any_extended(reinterpret_cast<const unsigned char*>(VARDATA_ANY(key)),
                          static_cast<int>(VARSIZE_ANY_EXHDR(key)), event.tenant_id));
}

// Searches for the key and inserts it if there is none, under lock_key() on its hash. Results as of
// find_dedup_row(): without a row and an xid, the key was inserted. Without the lock two sessions
// could both find nothing and insert: one would have to delete its row, and others would wait for
// that transaction, or deadlock.
std::optional<DedupRow> find_or_insert_key(pg::TableWriter& writer, const Event& event,
                                           TimestampTz now, TransactionId* in_progress_xid)
{
    const uint64 hash = dedup_key_hash(event);
    lock_key(hash);
    const auto existing = find_dedup_row(writer, event, in_progress_xid);
    if (!existing && !TransactionIdIsValid(*in_progress_xid)) {
        fill_slot(pg::clear_slot(writer, 0), event, now);
        pg::insert_rows(writer, 1);
    }
    unlock_key(hash);
    return existing;
}

// Claims the key without the executor; only an expired key is updated by a statement. Results and
// waits as of claim_dedup_key().
std::optional<pg_uuid_t> claim_key_directly(Relation keys, const Event& event, TimestampTz now)
{
    pg::TableWriter writer = pg::open_table_writer(keys, 1);
    std::optional<pg_uuid_t> original_id;
    for (;;) {
        TransactionId in_progress_xid;
        const auto existing = find_or_insert_key(writer, event, now, &in_progress_xid);
        if (TransactionIdIsValid(in_progress_xid)) {
            XactLockTableWait(in_progress_xid, nullptr, nullptr, XLTW_None);
            continue;
        }
        if (existing && existing->expires_at > now)
            original_id = existing->tracking_id;
        if (!existing || original_id || take_over_expired_key(event, now))
            break;
    }
    pg::close_table_writer(writer);
    return original_id;
}

// Claims the key through the executor, for a table that users have changed. Results and waits as of
// claim_dedup_key(). Call inside as_owner().
std::optional<pg_uuid_t> claim_key_by_statement(const Event& event, TimestampTz now)
{
    static constinit Statement insert{
        "INSERT INTO _outbox.dedup_keys (tenant_id, dedup_key, tracking_id, expires_at)"
        " VALUES ($1, $2, $3, $4) ON CONFLICT (tenant_id, dedup_key) DO NOTHING",
        {INT8OID, TEXTOID, UUIDOID, TIMESTAMPTZOID}};
    static constinit Statement find{"SELECT tracking_id, expires_at FROM _outbox.dedup_keys"
                                    " WHERE tenant_id = $1 AND dedup_key = $2",
                                    {INT8OID, TEXTOID}};

    const Datum values[] = {Int64GetDatum(event.tenant_id), *event.dedup_key,
                            UUIDPGetDatum(&event.tracking_id),
                            TimestampTzGetDatum(expiry_time(now))};
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        if (insert.execute(values) == 1)
            return std::nullopt;
        if (find.execute(values) == 0)
            continue;
        bool isnull;
        const HeapTuple row = SPI_tuptable->vals[0];
        const Datum expires_at = SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull);
        if (DatumGetTimestampTz(expires_at) > now)
            return *DatumGetUUIDP(SPI_getbinval(row, SPI_tuptable->tupdesc, 1, &isnull));
        if (take_over_expired_key(event, now))
            return std::nullopt;
    }
}

} // namespace

std::optional<pg_uuid_t> claim_dedup_key(const Event& event, TimestampTz now)
{
    std::optional<pg_uuid_t> original_id;
    const Relation keys = table_open(extension_relations().dedup_keys, RowExclusiveLock);
    if (allows_direct_insert(keys))
        original_id = claim_key_directly(keys, event, now);
    else
        as_owner([&] { original_id = claim_key_by_statement(event, now); });
    table_close(keys, NoLock);
    return original_id;
}

} // namespace outbox
