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

// The remembered key, unless it is gone again by now.
struct Remembered {
    bool found;
    TimestampTz expires_at;
    pg_uuid_t tracking_id;
};

Remembered fetch(Relation keys, ItemPointer where)
{
    Remembered remembered{};
    TupleTableSlot* row = table_slot_create(keys, nullptr);
    if (table_tuple_fetch_row_version(keys, where, SnapshotAny, row)) {
        check_visible(keys, row);
        bool isnull;
        remembered.found = true;
        remembered.expires_at = DatumGetTimestampTz(slot_getattr(row, col_expires_at + 1, &isnull));
        remembered.tracking_id = *DatumGetUUIDP(slot_getattr(row, col_tracking_id + 1, &isnull));
    }
    ExecDropSingleTupleTableSlot(row);
    return remembered;
}

// Of several who find the key expired, one takes it over; the others wait here and then find that
// it is not expired any more.
bool take_over_expired(const Event& event, TimestampTz now)
{
    uint64 taken = 0;
    pg::as_owner([&] {
        static pg::Statement take_over{
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

std::optional<pg_uuid_t> claim_key(pg::TableWriter& writer, const Event& event, TimestampTz now)
{
    TupleTableSlot* slot = pg::fresh_slot(writer, 0);
    slot->tts_values[col_tenant_id] = Int64GetDatum(event.tenant_id);
    slot->tts_values[col_expires_at] = TimestampTzGetDatum(expiry(now));
    slot->tts_values[col_tracking_id] = UUIDPGetDatum(&event.tracking_id);
    slot->tts_values[col_dedup_key] = *event.dedup_key;
    for (int i = 0; i < column_count; ++i)
        slot->tts_isnull[i] = false;
    ExecStoreVirtualTuple(slot);

    for (;;) {
        ItemPointerData existing;
        if (pg::insert_unless_exists(writer, &existing))
            return std::nullopt;
        const Remembered remembered = fetch(writer.relation, &existing);
        if (!remembered.found)
            continue;
        if (remembered.expires_at > now)
            return remembered.tracking_id;
        if (take_over_expired(event, now))
            return std::nullopt;
    }
}

} // namespace

std::optional<pg_uuid_t> find_duplicate(const Event& event, TimestampTz now)
{
    const Relation keys = table_open(pg::objects().dedup_keys, RowExclusiveLock);
    pg::TableWriter writer = pg::open_writer(keys, 1, true);
    const auto first = claim_key(writer, event, now);
    pg::close_writer(writer);
    table_close(keys, NoLock);
    return first;
}

} // namespace outbox
