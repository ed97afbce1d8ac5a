#include "pg/index_scan.hpp"

#include "pg/catalog_generation.hpp"

extern "C" {
#include "utils/typcache.h"
}

#include <cstring>

namespace outbox::pg {

namespace {

// Returns true if an index key is ascending, with nulls last, the column's collation and the
// default B-tree operator family of its type.
bool has_default_order(Relation table, Relation index, std::size_t key)
{
    const Form_pg_attribute column =
        TupleDescAttr(RelationGetDescr(table), index->rd_index->indkey.values[key] - 1);
    const TypeCacheEntry* type = lookup_type_cache(column->atttypid, TYPECACHE_BTREE_OPFAMILY);
    return index->rd_indoption[key] == 0 && index->rd_indcollation[key] == column->attcollation &&
           index->rd_opfamily[key] == type->btree_opf;
}

// Returns true for a valid B-tree index with exactly these key columns in default order, and with
// no predicate but that `not_null_column` IS NOT NULL.
bool is_index_on(Relation table, Relation index, std::span<const AttrNumber> columns,
                 AttrNumber not_null_column)
{
    const Form_pg_index form = index->rd_index;
    if (!form->indisvalid || index->rd_rel->relam != BTREE_AM_OID ||
        form->indnkeyatts != static_cast<int>(columns.size()))
        return false;
    List* predicate = RelationGetIndexPredicate(index);
    if (predicate != NIL &&
        (not_null_column == 0 || not_null_column_of(predicate) != not_null_column))
        return false;
    for (std::size_t i = 0; i < columns.size(); ++i)
        if (form->indkey.values[i] != columns[i] || !has_default_order(table, index, i))
            return false;
    return true;
}

// Returns the quoted names of the columns, separated by commas, palloc'd.
const char* column_names(Relation table, std::span<const AttrNumber> columns)
{
    StringInfoData names;
    initStringInfo(&names);
    for (const AttrNumber column : columns)
        appendStringInfo(
            &names, "%s%s", names.len == 0 ? "" : ", ",
            quote_identifier(NameStr(TupleDescAttr(RelationGetDescr(table), column - 1)->attname)));
    return names.data;
}

// Returns the equality function of int4, int8 or text. Raises an error for other types.
RegProcedure equality_function(Oid type)
{
    switch (type) {
    case INT4OID:
        return F_INT4EQ;
    case INT8OID:
        return F_INT8EQ;
    case TEXTOID:
        return F_TEXTEQ;
    default:
        elog(ERROR, "unexpected index key type %u", type);
        pg_unreachable();
    }
}

} // namespace

AttrNumber not_null_column_of(List* predicate)
{
    if (list_length(predicate) != 1)
        return 0;
    const auto* test = static_cast<const NullTest*>(linitial(predicate));
    if (!IsA(test, NullTest) || test->nulltesttype != IS_NOT_NULL || !IsA(test->arg, Var))
        return 0;
    return reinterpret_cast<const Var*>(test->arg)->varattno;
}

AttrNumber find_column(Relation table, const ColumnSpec& column, int expected)
{
    const TupleDesc descriptor = RelationGetDescr(table);
    const bool is_expected =
        expected < descriptor->natts &&
        std::strcmp(NameStr(TupleDescAttr(descriptor, expected)->attname), column.name) == 0;
    const AttrNumber number = is_expected ? static_cast<AttrNumber>(expected + 1)
                                          : get_attnum(RelationGetRelid(table), column.name);
    if (number == InvalidAttrNumber ||
        TupleDescAttr(descriptor, number - 1)->atttypid != column.type)
        ereport(ERROR,
                (errcode(ERRCODE_UNDEFINED_COLUMN),
                 errmsg("table \"%s\" has no column \"%s\" of type %s",
                        RelationGetRelationName(table), column.name, format_type_be(column.type))));
    return number;
}

Relation open_index(Relation table, std::span<const AttrNumber> columns, LOCKMODE lock,
                    AttrNumber not_null_column)
{
    List* indexes = RelationGetIndexList(table);
    ListCell* cell;
    foreach (cell, indexes) {
        const Relation index = index_open(lfirst_oid(cell), lock);
        if (is_index_on(table, index, columns, not_null_column)) {
            list_free(indexes);
            return index;
        }
        index_close(index, NoLock);
    }
    const char* schema = get_namespace_name(RelationGetNamespace(table));
    const char* names = column_names(table, columns);
    ereport(ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
             errmsg("table \"%s\" has no index on (%s)", RelationGetRelationName(table), names),
             errhint("Run CREATE INDEX ON %s (%s).",
                     quote_qualified_identifier(schema, RelationGetRelationName(table)), names)));
    pg_unreachable();
}

namespace detail {

namespace {

// Looks up column numbers and index, unless `resolved` is valid. Raises the errors of find_column()
// and open_index().
void resolve_index(ResolvedIndex& resolved, const ColumnsToRead& to_read, Relation table)
{
    const uint64 generation = catalog_generation();
    if (resolved.generation == generation && resolved.table == RelationGetRelid(table))
        return;
    for (std::size_t i = 0; i < to_read.columns.size(); ++i)
        to_read.numbers[i] = find_column(table, to_read.columns[i], static_cast<int>(i));
    const Relation index = open_index(
        table, {to_read.numbers, static_cast<std::size_t>(to_read.key_count)}, AccessShareLock);
    resolved = {generation, RelationGetRelid(table), RelationGetRelid(index)};
    index_close(index, NoLock);
}

// Locks a row like SELECT FOR UPDATE, after waiting for concurrent updates; `slot` gets the newest
// version. Returns false if the row was deleted.
bool lock_row(Relation table, Snapshot snapshot, TupleTableSlot* slot)
{
    TM_FailureData failure;
    ItemPointerData tid = slot->tts_tid;
    const TM_Result result = table_tuple_lock(
        table, &tid, snapshot, slot, GetCurrentCommandId(false), LockTupleExclusive, LockWaitBlock,
        TUPLE_LOCK_FLAG_LOCK_UPDATE_IN_PROGRESS | TUPLE_LOCK_FLAG_FIND_LAST_VERSION, &failure);
    if (result != TM_Ok && result != TM_Deleted)
        elog(ERROR, "could not lock a row of table \"%s\": result %d",
             RelationGetRelationName(table), static_cast<int>(result));
    return result == TM_Ok;
}

} // namespace

bool find_row(ResolvedIndex& resolved, const ColumnsToRead& to_read, Oid table, Snapshot snapshot,
              std::span<const IndexKey> keys, Which which, Datum* values, bool* nulls)
{
    const bool for_update = which == Which::first_for_update;
    const Relation relation = table_open(table, for_update ? RowExclusiveLock : AccessShareLock);
    resolve_index(resolved, to_read, relation);
    const Relation index = index_open(resolved.index, AccessShareLock);
    ScanKeyData scan_keys[INDEX_MAX_KEYS];
    for (std::size_t i = 0; i < keys.size(); ++i)
        ScanKeyEntryInitialize(&scan_keys[i], 0, static_cast<AttrNumber>(i + 1),
                               BTEqualStrategyNumber, InvalidOid, index->rd_indcollation[i],
                               equality_function(keys[i].type), keys[i].value);
    const int key_count = static_cast<int>(keys.size());
    const IndexScanDesc scan = begin_index_scan(relation, index, snapshot, key_count);
    index_rescan(scan, scan_keys, key_count, nullptr, 0);
    TupleTableSlot* slot = table_slot_create(relation, nullptr);
    const bool found =
        index_getnext_slot(
            scan, which == Which::last ? BackwardScanDirection : ForwardScanDirection, slot) &&
        (!for_update || lock_row(relation, snapshot, slot));
    if (found) {
        // A copy, because the slot's tuple is in a buffer that is unpinned with the slot.
        const HeapTuple row = ExecCopySlotHeapTuple(slot);
        for (std::size_t i = 0; i < to_read.columns.size(); ++i)
            values[i] =
                heap_getattr(row, to_read.numbers[i], RelationGetDescr(relation), &nulls[i]);
    }
    ExecDropSingleTupleTableSlot(slot);
    index_endscan(scan);
    index_close(index, NoLock);
    table_close(relation, NoLock);
    return found;
}

} // namespace detail

} // namespace outbox::pg
