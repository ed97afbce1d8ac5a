#include "pg/heap_insert.hpp"

#include "pg/catalog_generation.hpp"

#include <cstring>

namespace outbox::pg {

namespace {

bool has_plain_indexes(Relation relation)
{
    bool plain = true;
    List* indexes = RelationGetIndexList(relation);
    ListCell* cell;
    foreach (cell, indexes) {
        const Relation index = index_open(lfirst_oid(cell), AccessShareLock);
        const IndexInfo* info = BuildIndexInfo(index);
        plain = plain && info->ii_Expressions == NIL &&
                (info->ii_Predicate == NIL || column_wanted_by(info->ii_Predicate) > 0) &&
                info->ii_ExclusionOps == nullptr && index->rd_index->indimmediate;
        index_close(index, NoLock);
    }
    list_free(indexes);
    return plain;
}

// Are all columns of the other index among this one's? Then this one is unique if the other is.
bool covers(const IndexInfo* info, const IndexInfo* other)
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

// Must a unique index be checked, or does the check of one with fewer columns say as much?
bool must_check(const ResultRelInfo* result, int number)
{
    const IndexInfo* info = result->ri_IndexRelationInfo[number];
    if (!info->ii_Unique)
        return false;
    if (info->ii_NullsNotDistinct)
        return true;
    for (int i = 0; i < result->ri_NumIndices; ++i) {
        const IndexInfo* other = result->ri_IndexRelationInfo[i];
        if (other->ii_Unique && other->ii_ReadyForInserts && other->ii_Predicate == NIL &&
            other->ii_NumIndexKeyAttrs < info->ii_NumIndexKeyAttrs && covers(info, other))
            return false;
    }
    return true;
}

void insert_into_index(TableWriter& writer, int number, TupleTableSlot* slot)
{
    const AttrNumber wanted = writer.wanted[number];
    if (wanted > 0 && slot->tts_isnull[wanted - 1])
        return;
    Datum values[INDEX_MAX_KEYS];
    bool isnull[INDEX_MAX_KEYS];
    const Relation index = writer.result->ri_IndexRelationDescs[number];
    IndexInfo* info = writer.result->ri_IndexRelationInfo[number];
    FormIndexDatum(info, slot, nullptr, values, isnull);
    index_insert(index, values, isnull, &slot->tts_tid, writer.relation,
                 writer.must_check[number] ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, false, info);
}

void find_by_primary_key(const TableWriter& writer, Snapshot snapshot, int64 key,
                         TupleTableSlot* slot)
{
    const Relation index = writer.result->ri_IndexRelationDescs[primary_key(writer)];
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

bool fires_on_insert(Relation relation)
{
    const TriggerDesc* triggers = relation->trigdesc;
    return triggers != nullptr &&
           (triggers->trig_insert_before_row || triggers->trig_insert_after_row ||
            triggers->trig_insert_instead_row || triggers->trig_insert_before_statement ||
            triggers->trig_insert_after_statement || triggers->trig_insert_new_table);
}

bool is_plain(Relation relation, const char* check)
{
    return relation->trigdesc == nullptr && takes_rows_plainly(relation, check);
}

bool takes_rows_plainly(Relation relation, const char* check)
{
    const TupleConstr* constraints = relation->rd_att->constr;
    bool computed = constraints != nullptr && constraints->has_generated_stored;
    for (int i = 0; constraints != nullptr && i < constraints->num_check; ++i)
        computed =
            computed || check == nullptr || std::strcmp(constraints->check[i].ccname, check) != 0;
    return relation->rd_rel->relkind == RELKIND_RELATION && !fires_on_insert(relation) &&
           relation->rd_rules == nullptr && !relation->rd_rel->relforcerowsecurity && !computed &&
           has_plain_indexes(relation);
}

bool has_shape(Relation relation, const ColumnShape* columns, int count)
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

TableWriter open_writer(Relation relation, int capacity)
{
    TableWriter writer;
    writer.relation = relation;
    writer.capacity = capacity;
    writer.result = makeNode(ResultRelInfo);
    InitResultRelInfo(writer.result, relation, 1, nullptr, 0);
    ExecOpenIndices(writer.result, false);
    const int indexes = writer.result->ri_NumIndices;
    writer.must_check = static_cast<bool*>(palloc(sizeof(bool) * Max(indexes, 1)));
    writer.wanted = static_cast<AttrNumber*>(palloc(sizeof(AttrNumber) * Max(indexes, 1)));
    for (int i = 0; i < indexes; ++i) {
        writer.must_check[i] = must_check(writer.result, i);
        writer.wanted[i] = column_wanted_by(writer.result->ri_IndexRelationInfo[i]->ii_Predicate);
    }

    // A copy, because each slot would pin the relation's own descriptor.
    const TupleDesc descriptor =
        capacity > 1 ? CreateTupleDescCopy(RelationGetDescr(relation)) : RelationGetDescr(relation);
    writer.slots = static_cast<TupleTableSlot**>(palloc(sizeof(TupleTableSlot*) * capacity));
    for (int i = 0; i < capacity; ++i)
        writer.slots[i] = MakeSingleTupleTableSlot(descriptor, &TTSOpsVirtual);
    return writer;
}

void close_writer(TableWriter& writer)
{
    for (int i = 0; i < writer.capacity; ++i)
        ExecDropSingleTupleTableSlot(writer.slots[i]);
    ExecCloseIndices(writer.result);
}

TupleTableSlot* fresh_slot(TableWriter& writer, int index)
{
    return ExecClearTuple(writer.slots[index]);
}

void insert(TableWriter& writer, int count)
{
    const CommandId command = GetCurrentCommandId(true);
    if (count == 1)
        table_tuple_insert(writer.relation, writer.slots[0], command, 0, nullptr);
    else
        table_multi_insert(writer.relation, writer.slots, count, command, 0, nullptr);

    // Index by index, so that each one's last page stays at hand.
    for (int i = 0; i < writer.result->ri_NumIndices; ++i) {
        if (!writer.result->ri_IndexRelationInfo[i]->ii_ReadyForInserts)
            continue;
        for (int row = 0; row < count; ++row)
            insert_into_index(writer, i, writer.slots[row]);
    }
}

bool DirectTable::is_untouched(Oid table)
{
    const Relation relation = table_open(table, RowExclusiveLock);
    const bool untouched = is_as_made(relation);
    table_close(relation, NoLock);
    return untouched;
}

bool DirectTable::insert(Oid table, const Datum* values, const bool* nulls)
{
    const Relation relation = table_open(table, RowExclusiveLock);
    const bool can_do = is_as_made(relation);
    if (can_do) {
        TableWriter writer = open_writer(relation, 1);
        TupleTableSlot* slot = fresh_slot(writer, 0);
        for (int i = 0; i < count_; ++i) {
            slot->tts_values[i] = values[i];
            slot->tts_isnull[i] = nulls[i];
        }
        ExecStoreVirtualTuple(slot);
        pg::insert(writer, 1);
        close_writer(writer);
    }
    table_close(relation, NoLock);
    return can_do;
}

bool DirectTable::update(Oid table, int64 key, std::span<const ColumnChange> changes)
{
    const Relation relation = table_open(table, RowExclusiveLock);
    TableWriter writer = open_writer(relation, 1);
    // With other indexes than the primary key, some may have to hear of the new row and some not.
    const bool can_do = is_as_made(relation) && writer.result->ri_NumIndices == 1;
    if (can_do) {
        CommandCounterIncrement();
        const Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
        TupleTableSlot* before = table_slot_create(relation, nullptr);
        find_by_primary_key(writer, snapshot, key, before);
        slot_getallattrs(before);
        TupleTableSlot* after = fresh_slot(writer, 0);
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
    close_writer(writer);
    table_close(relation, NoLock);
    return can_do;
}

bool DirectTable::is_as_made(Relation table)
{
    if (known_generation_ != catalog_generation()) {
        const uint64 generation = catalog_generation();
        is_as_made_ = has_shape(table, columns_, count_) && is_plain(table);
        known_generation_ = generation;
    }
    return is_as_made_;
}

int primary_key(const TableWriter& writer)
{
    for (int i = 0; i < writer.result->ri_NumIndices; ++i)
        if (writer.result->ri_IndexRelationDescs[i]->rd_index->indisprimary)
            return i;
    elog(ERROR, "table \"%s\" has no primary key", RelationGetRelationName(writer.relation));
    pg_unreachable();
}

} // namespace outbox::pg
