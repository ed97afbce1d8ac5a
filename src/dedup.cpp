#include "dedup.hpp"

#include "pg/catalog.hpp"
#include "pg/guc.hpp"
#include "pg/spi.hpp"
#include "pg/table.hpp"

namespace outbox {

namespace {

// The columns of outbox_dedup_keys in the order of the install script.
enum Column { col_tenant_id, col_expires_at, col_tracking_id, col_dedup_key, column_count };

TimestampTz expiry(TimestampTz now)
{
    return now + static_cast<int64>(settings::dedup_window) * USECS_PER_SEC;
}

// The remembered key.
struct Remembered {
    TimestampTz expires_at;
    pg_uuid_t tracking_id;
};

// Mirrors ExecCheckTupleVisible(): under one snapshot for the whole transaction, an answer that
// rests on a row the snapshot does not show would be none.
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

Remembered read_row(Relation keys, TupleTableSlot* row)
{
    check_visible(keys, row);
    bool isnull;
    return {DatumGetTimestampTz(slot_getattr(row, col_expires_at + 1, &isnull)),
            *DatumGetUUIDP(slot_getattr(row, col_tracking_id + 1, &isnull))};
}

// Looks once. A row that another transaction is inserting or deleting is reported in `unfinished`.
// Mirrors check_exclusion_or_unique_constraint().
std::optional<Remembered> look_up(pg::TableWriter& writer, const Event& event,
                                  TransactionId* unfinished)
{
    const Relation keys = writer.relation;
    const Relation index = writer.result->ri_IndexRelationDescs[pg::primary_key(writer)];
    ScanKeyData scan_keys[2];
    ScanKeyEntryInitialize(&scan_keys[0], 0, 1, BTEqualStrategyNumber, InvalidOid, InvalidOid,
                           F_INT8EQ, Int64GetDatum(event.tenant_id));
    ScanKeyEntryInitialize(&scan_keys[1], 0, 2, BTEqualStrategyNumber, InvalidOid,
                           index->rd_indcollation[1], F_TEXTEQ, *event.dedup_key);

    SnapshotData dirty;
    InitDirtySnapshot(dirty);
    std::optional<Remembered> remembered;
    *unfinished = InvalidTransactionId;
    TupleTableSlot* row = table_slot_create(keys, nullptr);
    const IndexScanDesc scan = pg::begin_index_scan(keys, index, &dirty, 2);
    index_rescan(scan, scan_keys, 2, nullptr, 0);
    if (index_getnext_slot(scan, ForwardScanDirection, row)) {
        *unfinished = TransactionIdIsValid(dirty.xmin) ? dirty.xmin : dirty.xmax;
        if (!TransactionIdIsValid(*unfinished))
            remembered = read_row(keys, row);
    }
    index_endscan(scan);
    ExecDropSingleTupleTableSlot(row);
    return remembered;
}

// Looks until there is nothing left to wait for.
std::optional<Remembered> find_key(pg::TableWriter& writer, const Event& event)
{
    for (;;) {
        TransactionId unfinished;
        const auto remembered = look_up(writer, event, &unfinished);
        if (!TransactionIdIsValid(unfinished))
            return remembered;
        XactLockTableWait(unfinished, nullptr, nullptr, XLTW_None);
    }
}

// Of several who find the key expired, one takes it over; the others wait here and then find that
// it is not expired any more.
bool take_over_expired(const Event& event, TimestampTz now)
{
    uint64 taken = 0;
    pg::as_owner([&] {
        static constinit pg::Statement take_over{
            "UPDATE @schema@.outbox_dedup_keys SET tracking_id = $3, expires_at = $4"
            " WHERE tenant_id = $1 AND dedup_key = $2 AND expires_at <= $5",
            {INT8OID, TEXTOID, UUIDOID, TIMESTAMPTZOID, TIMESTAMPTZOID}};
        const Datum values[] = {Int64GetDatum(event.tenant_id), *event.dedup_key,
                                UUIDPGetDatum(&event.tracking_id), TimestampTzGetDatum(expiry(now)),
                                TimestampTzGetDatum(now)};
        taken = take_over.execute(values);
    });
    return taken == 1;
}

void fill(TupleTableSlot* slot, const Event& event, TimestampTz now)
{
    slot->tts_values[col_tenant_id] = Int64GetDatum(event.tenant_id);
    slot->tts_values[col_expires_at] = TimestampTzGetDatum(expiry(now));
    slot->tts_values[col_tracking_id] = UUIDPGetDatum(&event.tracking_id);
    slot->tts_values[col_dedup_key] = *event.dedup_key;
    for (int i = 0; i < column_count; ++i)
        slot->tts_isnull[i] = false;
    ExecStoreVirtualTuple(slot);
}

std::optional<pg_uuid_t> claim_key(pg::TableWriter& writer, const Event& event, TimestampTz now)
{
    for (;;) {
        const auto remembered = find_key(writer, event);
        if (!remembered) {
            fill(pg::fresh_slot(writer, 0), event, now);
            if (pg::insert_if_unique(writer, pg::primary_key(writer)))
                return std::nullopt;
        } else if (remembered->expires_at > now) {
            return remembered->tracking_id;
        } else if (take_over_expired(event, now)) {
            return std::nullopt;
        }
    }
}

} // namespace

std::optional<pg_uuid_t> find_duplicate(const Event& event, TimestampTz now)
{
    const Relation keys = table_open(pg::objects().dedup_keys, RowExclusiveLock);
    pg::TableWriter writer = pg::open_writer(keys, 1);
    const auto first = claim_key(writer, event, now);
    pg::close_writer(writer);
    table_close(keys, NoLock);
    return first;
}

} // namespace outbox
