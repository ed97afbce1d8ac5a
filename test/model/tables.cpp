// The log as a table: partitions, the index on id, the partial index on (xid, id), and scans of
// them. The rows are in the state.
#include "extension/relations.hpp"
#include "log/append.hpp"
#include "log/partition_children.hpp"
#include "server.hpp"

extern "C" {
#include "catalog/partition.h"
}

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace outbox::model {

namespace {

constexpr Oid log_oid = 1;
constexpr Oid partition_oid = 10; // of the first partition
constexpr Oid id_index_oid = 20;
constexpr Oid xid_index_oid = 30;
constexpr int max_partitions = 2;

RelationData* relation_with(Oid oid)
{
    static FormData_pg_class plain_table = {};
    plain_table.relkind = RELKIND_RELATION;
    static RelationData relations[40];
    relations[oid].rd_id = oid;
    relations[oid].rd_rel = &plain_table;
    return &relations[oid];
}

int partition_of(const RelationData* relation)
{
    return static_cast<int>(relation->rd_id % 10);
}

// All rows of one call are in one partition; the rows of the next call are in the next one.
int partition_of_row(int session, int message)
{
    const int call = message / playing.setting->plans[session].run_length;
    return (session + call) % playing.setting->partitions;
}

template <typename Visit>
void for_each_row(int partition, Visit&& visit)
{
    for (int session = 0; session < max_sessions; ++session)
        for (int i = 0; i < max_messages; ++i) {
            const Row& row = playing.state->sessions[session].rows[i];
            if (row.state != RowState::none && partition_of_row(session, i) == partition)
                visit(row);
        }
}

bool is_visible(const Row& row, const SnapshotData& snapshot)
{
    if (row.xid == playing.own_xid || playing.setting->bug == Bug::any_row)
        return true;
    const TransactionId* begin = snapshot.xip;
    const TransactionId* end = begin + snapshot.xcnt;
    return row.state == RowState::committed && row.xid < snapshot.xmax &&
           std::find(begin, end, row.xid) == end;
}

// An index entry as returned by a scan.
struct Entry {
    IndexTupleData head;
    Xid xid;
};

struct RowScan {
    IndexScanDescData base; // must be first: the product casts the pointer
    const Row* rows[max_sessions * max_messages];
    int count;
    int at;
    Entry entry;
};

bool fits(std::int64_t value, const ScanKeyData& key)
{
    const std::int64_t wanted = DatumGetInt64(key.sk_argument);
    switch (key.sk_strategy) {
    case BTLessStrategyNumber:
        return value < wanted;
    case BTLessEqualStrategyNumber:
        return value <= wanted;
    case BTEqualStrategyNumber:
        return value == wanted;
    case BTGreaterEqualStrategyNumber:
        return value >= wanted;
    case BTGreaterStrategyNumber:
        return value > wanted;
    }
    std::abort();
}

bool is_on_xid(const RowScan& scan)
{
    return scan.base.indexRelation->rd_id >= xid_index_oid;
}

bool fits(const RowScan& scan, const Row& row, const ScanKeyData* keys, int count)
{
    if (is_on_xid(scan) && row.run_length == 0)
        return false;
    return std::all_of(keys, keys + count, [&](const ScanKeyData& key) {
        return fits(is_on_xid(scan) && key.sk_attno == 1 ? row.xid : row.id, key);
    });
}

// A descriptor without cached column offsets, so that the server's macros call
// nocache_index_getattr().
TupleDesc descriptor()
{
    alignas(16) static char bytes[4096];
    auto* result = reinterpret_cast<TupleDesc>(bytes);
    if (result->natts == 0) {
        std::memset(bytes, 0xFF, sizeof(bytes));
        result->natts = log_column_count;
    }
    return result;
}

TupleTableSlot* make_slot()
{
    auto* slot = static_cast<TupleTableSlot*>(palloc0(sizeof(TupleTableSlot)));
    slot->tts_tupleDescriptor = descriptor();
    slot->tts_values = static_cast<Datum*>(palloc0(sizeof(Datum) * log_column_count));
    slot->tts_isnull = static_cast<bool*>(palloc0(sizeof(bool) * log_column_count));
    slot->tts_nvalid = log_column_count;
    return slot;
}

void show(TupleTableSlot* slot, const Row& row)
{
    slot->tts_values[col_xid] = FullTransactionIdGetDatum(FullTransactionIdFromU64(row.xid));
    slot->tts_values[col_id] = Int64GetDatum(row.id);
    slot->tts_values[col_run_length] = Int16GetDatum(row.run_length);
    slot->tts_isnull[col_run_length] = row.run_length == 0;
}

} // namespace

void write_row(Xid xid, Id id, int run_length)
{
    if (playing.rows == max_messages)
        std::abort();
    playing.session().rows[playing.rows++] = {static_cast<Byte>(id),
                                              static_cast<Byte>(xid),
                                              static_cast<Byte>(run_length),
                                              RowState::written,
                                              false,
                                              false};
    Server& server = playing.state->server;
    server.logged_next_xid = std::max<Byte>(server.logged_next_xid, static_cast<Byte>(xid + 1));
}

} // namespace outbox::model

using namespace outbox::model;

extern "C" {

Relation table_open(Oid oid, LOCKMODE)
{
    return relation_with(oid);
}

Relation try_relation_open(Oid oid, LOCKMODE)
{
    return relation_with(oid);
}

void relation_close(Relation, LOCKMODE) {}

bool ConditionalLockRelationOid(Oid, LOCKMODE)
{
    return true;
}

// Used for a single partition, which no claim opens.
Relation try_table_open(Oid, LOCKMODE)
{
    std::abort();
}

Oid get_partition_parent(Oid, bool)
{
    std::abort();
}

void table_close(Relation, LOCKMODE) {}

Relation index_open(Oid oid, LOCKMODE)
{
    return relation_with(oid);
}

void index_close(Relation, LOCKMODE) {}

void AcceptInvalidationMessages() {}

BlockNumber RelationGetNumberOfBlocksInFork(Relation relation, ForkNumber)
{
    BlockNumber blocks = 0;
    for_each_row(partition_of(relation), [&](const Row&) { blocks = 1; });
    return blocks;
}

// ---- index scans

void ScanKeyInit(ScanKey key, AttrNumber column, StrategyNumber strategy, RegProcedure,
                 Datum argument)
{
    key->sk_attno = column;
    key->sk_strategy = strategy;
    key->sk_argument = argument;
}

IndexScanDesc index_beginscan(Relation table, Relation index, Snapshot snapshot,
                              OUTBOX_MORE_BEGINSCAN_PARAMETERS)
{
    auto* scan = static_cast<RowScan*>(palloc0(sizeof(RowScan)));
    scan->base.heapRelation = table;
    scan->base.indexRelation = index;
    scan->base.xs_snapshot = snapshot;
    scan->base.xs_itup = &scan->entry.head;
    scan->base.xs_itupdesc = descriptor();
    return &scan->base;
}

void index_rescan(IndexScanDesc base, ScanKey keys, int count, ScanKey, int)
{
    auto& scan = *reinterpret_cast<RowScan*>(base);
    scan.count = scan.at = 0;
    for_each_row(partition_of(base->heapRelation), [&](const Row& row) {
        if (fits(scan, row, keys, count))
            scan.rows[scan.count++] = &row;
    });
    std::sort(scan.rows, scan.rows + scan.count, [&](const Row* a, const Row* b) {
        return is_on_xid(scan) && a->xid != b->xid ? a->xid < b->xid : a->id < b->id;
    });
}

bool index_getnext_slot(IndexScanDesc base, ScanDirection, TupleTableSlot* slot)
{
    auto& scan = *reinterpret_cast<RowScan*>(base);
    while (scan.at < scan.count && !is_visible(*scan.rows[scan.at], *base->xs_snapshot))
        ++scan.at;
    if (scan.at == scan.count)
        return false;
    show(slot, *scan.rows[scan.at++]);
    return true;
}

// Index entries have no visibility information, so rows of all transactions are returned.
ItemPointer index_getnext_tid(IndexScanDesc base, ScanDirection)
{
    auto& scan = *reinterpret_cast<RowScan*>(base);
    if (scan.at == scan.count)
        return nullptr;
    scan.entry.xid = scan.rows[scan.at++]->xid;
    return &base->xs_heaptid;
}

Datum nocache_index_getattr(IndexTuple entry, int, TupleDesc)
{
    return FullTransactionIdGetDatum(
        FullTransactionIdFromU64(reinterpret_cast<const Entry*>(entry)->xid));
}

void index_endscan(IndexScanDesc) {}

// ---- tuple slots

TupleTableSlot* table_slot_create(Relation, List**)
{
    return make_slot();
}

void ExecDropSingleTupleTableSlot(TupleTableSlot*) {}

TupleTableSlot* ExecStoreVirtualTuple(TupleTableSlot* slot)
{
    return slot;
}

void slot_getsomeattrs_int(TupleTableSlot*, int)
{
    std::abort(); // slots are always fully deformed
}

} // extern "C"

// ---- functions of src/pg for tables

namespace outbox::pg {

AttrNumber find_column(Relation, const ColumnSpec&, int expected)
{
    return static_cast<AttrNumber>(expected + 1);
}

Relation open_index(Relation table, std::span<const AttrNumber> columns, LOCKMODE, AttrNumber)
{
    const Oid first = columns.size() > 1 ? xid_index_oid : id_index_oid;
    return relation_with(first + static_cast<Oid>(partition_of(table)));
}

TableWriter open_table_writer(Relation relation, int capacity)
{
    TableWriter writer = {};
    writer.relation = relation;
    writer.capacity = capacity;
    writer.slots = static_cast<TupleTableSlot**>(
        palloc(sizeof(TupleTableSlot*) * static_cast<std::size_t>(capacity)));
    for (int i = 0; i < capacity; ++i)
        writer.slots[i] = make_slot();
    return writer;
}

void close_table_writer(TableWriter&) {}

TupleTableSlot* clear_slot(TableWriter& writer, int index)
{
    return writer.slots[index];
}

void insert_rows(TableWriter& writer, int count)
{
    for (int i = 0; i < count; ++i) {
        const TupleTableSlot* slot = writer.slots[i];
        write_row(
            U64FromFullTransactionId(DatumGetFullTransactionId(slot->tts_values[col_xid])),
            DatumGetInt64(slot->tts_values[col_id]),
            slot->tts_isnull[col_run_length] ? 0 : DatumGetInt16(slot->tts_values[col_run_length]));
    }
}

} // namespace outbox::pg

namespace outbox {

ExtensionRelations extension_relations()
{
    ExtensionRelations objects = {};
    objects.log = log_oid;
    return objects;
}

List* partition_children_of(Oid)
{
    static ListCell cells[max_partitions];
    static List partitions;
    for (int i = 0; i < max_partitions; ++i)
        cells[i].oid_value = partition_oid + static_cast<Oid>(i);
    partitions.type = T_OidList;
    partitions.length = partitions.max_length = playing.setting->partitions;
    partitions.elements = cells;
    return &partitions;
}

// The list of partitions never changes.
List* cached_children(Oid table)
{
    return partition_children_of(table);
}

List* current_children(Oid table)
{
    return partition_children_of(table);
}

} // namespace outbox
