#include "log/open_partitions.hpp"

#include "extension/relations.hpp"
#include "log/archive_lookup.hpp"
#include "log/partition_children.hpp"

extern "C" {
#include "catalog/partition.h"
}

#include <algorithm>

namespace outbox {

namespace {

// Opens the partition with `lock` and adds it to log.partitions, unless it was dropped. NoLock: the
// caller holds the lock.
void open_partition(OpenLog& log, Oid partition, LOCKMODE lock = AccessShareLock)
{
    if (const Relation table = try_relation_open(partition, lock))
        log.partitions.push({table, LogPartition::unknown, {}});
}

// Closes the partitions and empties log.partitions. The locks stay.
void close_partitions(OpenLog& log)
{
    for (const LogPartition& partition : log.partitions)
        relation_close(partition.table, NoLock);
    log.partitions.set_size(0);
}

// Opens the listed partitions with AccessShareLock. Waits for no lock: the list is a cached one,
// and a partition in it may have left the log. Returns false if a lock is not available, with the
// partitions before it open.
bool try_open_partitions(OpenLog& log, List* partitions)
{
    for (int i = 0; i < list_length(partitions); ++i) {
        if (!ConditionalLockRelationOid(list_nth_oid(partitions, i), AccessShareLock))
            return false;
        open_partition(log, list_nth_oid(partitions, i), NoLock);
    }
    return true;
}

// Returns whether this partition is among the open ones.
bool contains_partition(const OpenLog& log, Oid partition)
{
    return std::ranges::any_of(log.partitions, [&](const LogPartition& one) {
        return RelationGetRelid(one.table) == partition;
    });
}

// Returns whether the open partitions, without the archive's, are those of the list, in its order.
bool contains_exactly(const OpenLog& log, List* partitions)
{
    if (list_length(partitions) != static_cast<int>(log.log_partition_count))
        return false;
    for (int i = 0; i < list_length(partitions); ++i)
        if (list_nth_oid(partitions, i) != RelationGetRelid(log.partitions[i].table))
            return false;
    return true;
}

} // namespace

bool contains_all_partitions(const OpenLog& log)
{
    if (!contains_exactly(log, current_children(RelationGetRelid(log.parent))))
        return false;
    // A transaction that held all locks before has accepted invalidations only now: a partition may
    // have been restored from cold storage to the archive.
    return log.archive != nullptr || !archive_has_ids_above(log.archive_above);
}

OpenLog open_log_for_reading(Id above)
{
    OpenLog log = {};
    log.archive_above = above;
    log.parent = table_open(extension_relations().log, AccessShareLock);
    if (!try_open_partitions(log, cached_children(RelationGetRelid(log.parent)))) {
        close_partitions(log);
        List* partitions = partition_children_of(RelationGetRelid(log.parent));
        for (int i = 0; i < list_length(partitions); ++i)
            open_partition(log, list_nth_oid(partitions, i));
    }
    log.log_partition_count = log.partitions.size();

    // The lock on the log keeps partitions from leaving it from now on: those it no longer has are
    // in the archive.
    if (archive_has_ids_above(above)) {
        log.archive = table_open(extension_relations().archive, AccessShareLock);
        for (const Oid partition : archived_partitions_above(above))
            if (!contains_partition(log, partition))
                open_partition(log, partition);
    }
    return log;
}

CurrentLog open_current_log(Id above)
{
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        CurrentLog current = {open_log_for_reading(above), RegisterSnapshot(GetLatestSnapshot())};
        if (contains_all_partitions(current.log))
            return current;
        close_current_log(current);
    }
}

void close_current_log(CurrentLog& current)
{
    UnregisterSnapshot(current.snapshot);
    close_log(current.log);
}

OpenLog open_partition_for_reading(Oid partition)
{
    // The partition may have been dropped or detached before it was locked.
    const Relation table = try_table_open(partition, AccessShareLock);
    if (table == nullptr)
        ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
                        errmsg("partition with OID %u does not exist", partition)));
    const Oid parent = table->rd_rel->relispartition ? get_partition_parent(partition, true) : 0;
    if (parent != extension_relations().log && parent != extension_relations().archive)
        ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
                        errmsg("\"%s\" is not a partition of the log or the archive",
                               RelationGetRelationName(table))));
    OpenLog log = {};
    log.partitions.push({table, LogPartition::unknown, {}});
    return log;
}

void close_log(OpenLog& log)
{
    close_partitions(log);
    if (log.archive != nullptr)
        table_close(log.archive, NoLock);
    if (log.parent != nullptr)
        table_close(log.parent, NoLock);
}

} // namespace outbox
