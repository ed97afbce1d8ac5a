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

TableWriter open_writer(Relation relation, int capacity, bool unique_waits)
{
    TableWriter writer;
    writer.relation = relation;
    writer.estate = CreateExecutorState();
    writer.capacity = capacity;

    const MemoryContext before = MemoryContextSwitchTo(writer.estate->es_query_cxt);
    writer.result = makeNode(ResultRelInfo);
    InitResultRelInfo(writer.result, relation, 1, nullptr, 0);
    ExecOpenIndices(writer.result, unique_waits);
    // A copy, because each slot would pin the relation's own descriptor.
    const TupleDesc descriptor =
        capacity > 1 ? CreateTupleDescCopy(RelationGetDescr(relation)) : RelationGetDescr(relation);
    writer.slots = static_cast<TupleTableSlot**>(palloc(sizeof(TupleTableSlot*) * capacity));
    for (int i = 0; i < capacity; ++i)
        writer.slots[i] = MakeSingleTupleTableSlot(descriptor, &TTSOpsVirtual);
    MemoryContextSwitchTo(before);
    return writer;
}

void close_writer(TableWriter& writer)
{
    if (writer.capacity == 1)
        ExecDropSingleTupleTableSlot(writer.slots[0]);
    ExecCloseIndices(writer.result);
    FreeExecutorState(writer.estate);
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

    if (writer.result->ri_NumIndices == 0)
        return;
    for (int i = 0; i < count; ++i) {
        insert_index_tuples(writer.result, writer.slots[i], writer.estate, false, nullptr);
        ResetPerTupleExprContext(writer.estate);
    }
}

// Mirrors the ON CONFLICT part of ExecInsert().
bool insert_unless_exists(TableWriter& writer, ItemPointer existing)
{
    TupleTableSlot* slot = writer.slots[0];
    const CommandId command = GetCurrentCommandId(true);
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        if (!check_index_constraints(writer.result, slot, writer.estate, existing))
            return false;

        // Others who meet the row meanwhile wait for this lock, not for the whole transaction.
        const uint32 token = SpeculativeInsertionLockAcquire(GetCurrentTransactionId());
        bool conflict = false;
        table_tuple_insert_speculative(writer.relation, slot, command, 0, nullptr, token);
        insert_index_tuples(writer.result, slot, writer.estate, true, &conflict);
        table_tuple_complete_speculative(writer.relation, slot, token, !conflict);
        SpeculativeInsertionLockRelease(GetCurrentTransactionId());
        if (!conflict)
            return true;
    }
}

} // namespace outbox::pg
