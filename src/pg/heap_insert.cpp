#include "pg/heap_insert.hpp"

#include "pg/catalog_generation.hpp"

#include <cstring>

namespace outbox::pg {

namespace {

// Returns false if an index has expressions, is deferrable or an exclusion constraint, or has a
// predicate other than one IS NOT NULL. Locks the indexes AccessShare until the end of the
// transaction.
bool indexes_allow_direct_insert(Relation relation)
{
    bool plain = true;
    List* indexes = RelationGetIndexList(relation);
    ListCell* cell;
    foreach (cell, indexes) {
        const Relation index = index_open(lfirst_oid(cell), AccessShareLock);
        const IndexInfo* info = BuildIndexInfo(index);
        plain = plain && info->ii_Expressions == NIL &&
                (info->ii_Predicate == NIL || not_null_column_of(info->ii_Predicate) > 0) &&
                info->ii_ExclusionOps == nullptr && index->rd_index->indimmediate;
        index_close(index, NoLock);
    }
    list_free(indexes);
    return plain;
}

// Returns true if the keys of `info` include all keys of `other`. If `other` is unique, then the
// longer key is unique, too.
bool contains_columns_of(const IndexInfo* info, const IndexInfo* other)
{
    for (int i = 0; i < other->ii_NumIndexKeyAttrs; ++i) {
        bool found = false;
        for (int j = 0; j < info->ii_NumIndexKeyAttrs; ++j)
            found = found || info->ii_IndexAttrNumbers[j] == other->ii_IndexAttrNumbers[i];
        if (!found)
            return false;
    }
    return true;
}

// Returns false for an index that is not unique, and for one whose uniqueness follows from another
// unique index with fewer of its columns.
bool needs_unique_check(const ResultRelInfo* result, int number)
{
    const IndexInfo* info = result->ri_IndexRelationInfo[number];
    if (!info->ii_Unique)
        return false;
    if (info->ii_NullsNotDistinct)
        return true;
    for (int i = 0; i < result->ri_NumIndices; ++i) {
        const IndexInfo* other = result->ri_IndexRelationInfo[i];
        if (other->ii_Unique && other->ii_ReadyForInserts && other->ii_Predicate == NIL &&
            other->ii_NumIndexKeyAttrs < info->ii_NumIndexKeyAttrs &&
            contains_columns_of(info, other))
            return false;
    }
    return true;
}

// Inserts the entry of a row into one index, unless the index's predicate excludes the row. Raises
// unique_violation where the writer checks for duplicates.
void insert_into_index(TableWriter& writer, int number, TupleTableSlot* slot)
{
    const AttrNumber column = writer.not_null[number];
    if (column > 0 && slot->tts_isnull[column - 1])
        return;
    Datum values[INDEX_MAX_KEYS];
    bool isnull[INDEX_MAX_KEYS];
    const Relation index = writer.result->ri_IndexRelationDescs[number];
    IndexInfo* info = writer.result->ri_IndexRelationInfo[number];
    FormIndexDatum(info, slot, nullptr, values, isnull);
    index_insert(index, values, isnull, &slot->tts_tid, writer.relation,
                 writer.checks_unique[number] ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, false, info);
}

// Reads the row with this bigint primary key into `slot`. Raises an error if there is none.
void find_by_primary_key(const TableWriter& writer, Snapshot snapshot, int64 key,
                         TupleTableSlot* slot)
{
    const Relation index = writer.result->ri_IndexRelationDescs[primary_key_index(writer)];
    ScanKeyData scan_key;
    ScanKeyInit(&scan_key, 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(key));
    const IndexScanDesc scan = begin_index_scan(writer.relation, index, snapshot, 1);
    index_rescan(scan, &scan_key, 1, nullptr, 0);
    if (!index_getnext_slot(scan, ForwardScanDirection, slot))
        elog(ERROR, "table \"%s\" has no row " INT64_FORMAT,
             RelationGetRelationName(writer.relation), key);
    index_endscan(scan);
}

} // namespace

bool has_insert_triggers(Relation relation)
{
    const TriggerDesc* triggers = relation->trigdesc;
    return triggers != nullptr &&
           (triggers->trig_insert_before_row || triggers->trig_insert_after_row ||
            triggers->trig_insert_instead_row || triggers->trig_insert_before_statement ||
            triggers->trig_insert_after_statement || triggers->trig_insert_new_table);
}

bool allows_direct_write(Relation relation, const char* check)
{
    return relation->trigdesc == nullptr && allows_direct_insert(relation, check);
}

bool allows_direct_insert(Relation relation, const char* check)
{
    const TupleConstr* constraints = relation->rd_att->constr;
    bool computed = constraints != nullptr && constraints->has_generated_stored;
    for (int i = 0; constraints != nullptr && i < constraints->num_check; ++i)
        computed =
            computed || check == nullptr || std::strcmp(constraints->check[i].ccname, check) != 0;
    return relation->rd_rel->relkind == RELKIND_RELATION && !has_insert_triggers(relation) &&
           relation->rd_rules == nullptr && !relation->rd_rel->relforcerowsecurity && !computed &&
           indexes_allow_direct_insert(relation);
}

bool has_columns(Relation relation, const ColumnSpec* columns, int count)
{
    const TupleDesc descriptor = RelationGetDescr(relation);
    if (descriptor->natts != count)
        return false;
    for (int i = 0; i < count; ++i) {
        const Form_pg_attribute attribute = TupleDescAttr(descriptor, i);
        if (attribute->attisdropped || attribute->atttypid != columns[i].type ||
            (columns[i].may_be_null && attribute->attnotnull) ||
            std::strcmp(NameStr(attribute->attname), columns[i].name) != 0)
            return false;
    }
    return true;
}

TableWriter open_table_writer(Relation relation, int capacity)
{
    TableWriter writer;
    writer.relation = relation;
    writer.capacity = capacity;
    writer.result = makeNode(ResultRelInfo);
    InitResultRelInfo(writer.result, relation, 1, nullptr, 0);
    ExecOpenIndices(writer.result, false);
    const int indexes = writer.result->ri_NumIndices;
    writer.checks_unique = static_cast<bool*>(palloc(sizeof(bool) * Max(indexes, 1)));
    writer.not_null = static_cast<AttrNumber*>(palloc(sizeof(AttrNumber) * Max(indexes, 1)));
    for (int i = 0; i < indexes; ++i) {
        writer.checks_unique[i] = needs_unique_check(writer.result, i);
        writer.not_null[i] =
            not_null_column_of(writer.result->ri_IndexRelationInfo[i]->ii_Predicate);
    }

    // With several slots a copy, because each slot would pin the relation's own descriptor.
    const TupleDesc descriptor =
        capacity > 1 ? CreateTupleDescCopy(RelationGetDescr(relation)) : RelationGetDescr(relation);
    writer.slots = static_cast<TupleTableSlot**>(palloc(sizeof(TupleTableSlot*) * capacity));
    for (int i = 0; i < capacity; ++i)
        writer.slots[i] = MakeSingleTupleTableSlot(descriptor, &TTSOpsVirtual);
    return writer;
}

void close_table_writer(TableWriter& writer)
{
    for (int i = 0; i < writer.capacity; ++i)
        ExecDropSingleTupleTableSlot(writer.slots[i]);
    ExecCloseIndices(writer.result);
}

TupleTableSlot* clear_slot(TableWriter& writer, int index)
{
    return ExecClearTuple(writer.slots[index]);
}

void insert_rows(TableWriter& writer, int count)
{
    const CommandId command = GetCurrentCommandId(true);
    if (count == 1)
        table_tuple_insert(writer.relation, writer.slots[0], command, 0, nullptr);
    else
        table_multi_insert(writer.relation, writer.slots, count, command, 0, nullptr);

    // Index by index, so that the rightmost leaf page of each index stays in the CPU cache.
    for (int i = 0; i < writer.result->ri_NumIndices; ++i) {
        if (!writer.result->ri_IndexRelationInfo[i]->ii_ReadyForInserts)
            continue;
        for (int row = 0; row < count; ++row)
            insert_into_index(writer, i, writer.slots[row]);
    }
}

bool DirectTable::is_as_installed(Oid table)
{
    const Relation relation = table_open(table, RowExclusiveLock);
    const bool untouched = is_definition_unchanged(relation);
    table_close(relation, NoLock);
    return untouched;
}

bool DirectTable::insert(Oid table, const Datum* values, const bool* nulls)
{
    const Relation relation = table_open(table, RowExclusiveLock);
    const bool is_possible = is_definition_unchanged(relation);
    if (is_possible) {
        TableWriter writer = open_table_writer(relation, 1);
        TupleTableSlot* slot = clear_slot(writer, 0);
        for (int i = 0; i < count_; ++i) {
            slot->tts_values[i] = values[i];
            slot->tts_isnull[i] = nulls[i];
        }
        ExecStoreVirtualTuple(slot);
        pg::insert_rows(writer, 1);
        close_table_writer(writer);
    }
    table_close(relation, NoLock);
    return is_possible;
}

bool DirectTable::update(Oid table, int64 key, std::span<const ColumnChange> changes)
{
    const Relation relation = table_open(table, RowExclusiveLock);
    TableWriter writer = open_table_writer(relation, 1);
    // update_row() tells whether indexes need the new version, not which ones, so only the primary
    // key is supported.
    const bool is_possible = is_definition_unchanged(relation) && writer.result->ri_NumIndices == 1;
    if (is_possible) {
        CommandCounterIncrement();
        const Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
        TupleTableSlot* before = table_slot_create(relation, nullptr);
        find_by_primary_key(writer, snapshot, key, before);
        slot_getallattrs(before);
        TupleTableSlot* after = clear_slot(writer, 0);
        for (int i = 0; i < count_; ++i) {
            after->tts_values[i] = before->tts_values[i];
            after->tts_isnull[i] = before->tts_isnull[i];
        }
        for (const ColumnChange& change : changes) {
            after->tts_values[change.column] = change.value;
            after->tts_isnull[change.column] = change.isnull;
        }
        ExecStoreVirtualTuple(after);
        if (update_row(relation, before->tts_tid, after, snapshot))
            insert_into_index(writer, 0, after);
        ExecDropSingleTupleTableSlot(before);
        UnregisterSnapshot(snapshot);
    }
    close_table_writer(writer);
    table_close(relation, NoLock);
    return is_possible;
}

bool DirectTable::is_definition_unchanged(Relation table)
{
    if (known_generation_ != catalog_generation()) {
        const uint64 generation = catalog_generation();
        is_definition_unchanged_ =
            has_columns(table, columns_, count_) && allows_direct_write(table);
        known_generation_ = generation;
    }
    return is_definition_unchanged_;
}

int primary_key_index(const TableWriter& writer)
{
    for (int i = 0; i < writer.result->ri_NumIndices; ++i)
        if (writer.result->ri_IndexRelationDescs[i]->rd_index->indisprimary)
            return i;
    elog(ERROR, "table \"%s\" has no primary key", RelationGetRelationName(writer.relation));
    pg_unreachable();
}

} // namespace outbox::pg
