#include "pg/table.hpp"

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
        plain = plain && info->ii_Expressions == NIL && info->ii_Predicate == NIL &&
                info->ii_ExclusionOps == nullptr && index->rd_index->indimmediate;
        index_close(index, NoLock);
    }
    list_free(indexes);
    return plain;
}

const FormData_pg_index& index_form(const TableWriter& writer, int number)
{
    return *writer.result->ri_IndexRelationDescs[number]->rd_index;
}

bool insert_into_index(TableWriter& writer, int number, TupleTableSlot* slot,
                       IndexUniqueCheck check)
{
    Datum values[INDEX_MAX_KEYS];
    bool isnull[INDEX_MAX_KEYS];
    IndexInfo* info = writer.result->ri_IndexRelationInfo[number];
    FormIndexDatum(info, slot, nullptr, values, isnull);
    return index_insert(writer.result->ri_IndexRelationDescs[number], values, isnull,
                        &slot->tts_tid, writer.relation, check, false, info);
}

// Index by index, so that each one's last page stays at hand.
void insert_into_indexes(TableWriter& writer, int count, int except)
{
    for (int i = 0; i < writer.result->ri_NumIndices; ++i) {
        if (i == except || !writer.result->ri_IndexRelationInfo[i]->ii_ReadyForInserts)
            continue;
        const IndexUniqueCheck check =
            index_form(writer, i).indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO;
        for (int row = 0; row < count; ++row)
            insert_into_index(writer, i, writer.slots[row], check);
    }
}

} // namespace

bool is_plain(Relation relation)
{
    const TupleConstr* constraints = relation->rd_att->constr;
    const bool computed =
        constraints != nullptr && (constraints->num_check > 0 || constraints->has_generated_stored);
    return relation->rd_rel->relkind == RELKIND_RELATION && relation->trigdesc == nullptr &&
           relation->rd_rules == nullptr && !relation->rd_rel->relforcerowsecurity && !computed &&
           has_plain_indexes(relation);
}

TableWriter open_writer(Relation relation, int capacity)
{
    TableWriter writer;
    writer.relation = relation;
    writer.capacity = capacity;
    writer.result = makeNode(ResultRelInfo);
    InitResultRelInfo(writer.result, relation, 1, nullptr, 0);
    ExecOpenIndices(writer.result, false);

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

    insert_into_indexes(writer, count, -1);
}

int primary_key(const TableWriter& writer)
{
    for (int i = 0; i < writer.result->ri_NumIndices; ++i)
        if (index_form(writer, i).indisprimary)
            return i;
    elog(ERROR, "table \"%s\" has no primary key", RelationGetRelationName(writer.relation));
    pg_unreachable();
}

bool insert_if_unique(TableWriter& writer, int primary_key)
{
    TupleTableSlot* slot = writer.slots[0];
    table_tuple_insert(writer.relation, slot, GetCurrentCommandId(true), 0, nullptr);

    // Of several who get here at once, the one that reaches the index page first hears of no
    // conflict, and every other one does.
    if (insert_into_index(writer, primary_key, slot, UNIQUE_CHECK_PARTIAL)) {
        insert_into_indexes(writer, 1, primary_key);
        return true;
    }
    CommandCounterIncrement();
    simple_table_tuple_delete(writer.relation, &slot->tts_tid, GetLatestSnapshot());
    return false;
}

} // namespace outbox::pg
