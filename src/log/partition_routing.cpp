#include "log/partition_routing.hpp"

#include "extension/relations.hpp"
#include "log/partition_children.hpp"
#include "pg/catalog_generation.hpp"

namespace outbox {

namespace {

// The CHECK constraint that repeats the partition's bounds. It need not be evaluated for rows that
// were routed by these bounds.
constexpr const char* bounds_check_name = "outbox_bounds";

// Opens the table with RowExclusiveLock. If it was dropped while this session waited for the lock,
// opens the table that replaced it.
Relation open_partitioned_table(PartitionedTable table)
{
    const Relation relation = try_table_open(extension_relations().*table, RowExclusiveLock);
    return relation != nullptr ? relation
                               : table_open(extension_relations().*table, RowExclusiveLock);
}

// Returns the index in partitions->oids for rows of this time, that of the default partition if no
// other fits, or -1. Mirrors get_partition_for_tuple() for a range over one column.
int find_partition_index(Relation table, PartitionDesc partitions, TimestampTz time)
{
    if (partitions->nparts == 0)
        return -1;
    const PartitionKey key = RelationGetPartitionKey(table);
    const PartitionBoundInfo bounds = partitions->boundinfo;
    Datum value = TimestampTzGetDatum(time);
    bool equal;
    const int below = partition_range_datum_bsearch(key->partsupfunc, key->partcollation, bounds, 1,
                                                    &value, &equal);
    const int index = bounds->indexes[below + 1];
    return index < 0 ? bounds->default_index : index;
}

// Returns the partition for rows of this time, or InvalidOid. Before it returns the default
// partition or none, it may invalidate the table's relcache entry.
Oid find_partition(Relation table, TimestampTz time)
{
    PartitionDesc partitions = RelationGetPartitionDesc(table, true);
    int index = find_partition_index(table, partitions, time);
    // If the relation cache has missed a partition (log/partition_children.hpp), a row for it is
    // routed to the default partition, or to none.
    if (partitions->nparts > 0 && (index < 0 || index == partitions->boundinfo->default_index)) {
        refresh_partition_descriptor(table);
        partitions = RelationGetPartitionDesc(table, true);
        index = find_partition_index(table, partitions, time);
    }
    return index < 0 ? InvalidOid : partitions->oids[index];
}

} // namespace

InsertTarget open_insert_target(PartitionedTable table)
{
    bool created = false;
    for (;;) {
        const Relation relation = open_partitioned_table(table);
        const TimestampTz now = GetCurrentTimestamp();
        const Oid oid = find_partition(relation, now);
        if (OidIsValid(oid)) {
            // While this session waited for the lock, ATTACH may have narrowed the bounds of the
            // default partition: rows outside of them would be lost to searches and to pg_dump.
            const Relation partition = table_open(oid, RowExclusiveLock);
            if (find_partition(relation, now) == oid)
                return {relation, partition, now};
            table_close(partition, RowExclusiveLock);
            table_close(relation, RowExclusiveLock);
            continue;
        }

        // Creating partitions takes AccessExclusiveLock: two sessions that held RowExclusiveLock
        // meanwhile would deadlock.
        table_close(relation, RowExclusiveLock);
        if (created)
            ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                            errmsg("%s has no partition for the present time",
                                   table == &ExtensionRelations::log ? "the log" : "the audit log"),
                            errhint("See SELECT * FROM outbox_status().")));
        create_partitions(table);
        created = true;
    }
}

void close_insert_target(const InsertTarget& target)
{
    table_close(target.partition, NoLock);
    table_close(target.table, NoLock);
}

bool DirectInsertCheck::is_allowed(const InsertTarget& target)
{
    const Oid oid = RelationGetRelid(target.partition);
    if (known_partition_ == oid && known_generation_ == pg::catalog_generation())
        return known_answer_;

    pg::set_watched_partition(watcher_, oid);
    const uint64 generation = pg::catalog_generation();
    known_answer_ = !pg::has_insert_triggers(target.table) && target.table->rd_rules == nullptr &&
                    !target.table->rd_rel->relforcerowsecurity &&
                    pg::has_columns(target.partition, columns_, count_) &&
                    pg::allows_direct_insert(target.partition, bounds_check_name);
    known_partition_ = oid;
    known_generation_ = generation;
    return known_answer_;
}

} // namespace outbox
