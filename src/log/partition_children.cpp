#include "log/partition_children.hpp"

#include "pg/catalog_generation.hpp"
#include "pg/exceptions.hpp"

extern "C" {
#include "catalog/pg_inherits.h"
#include "partitioning/partdesc.h"
#include "storage/lmgr.h"
#include "storage/sinval.h"
#include "utils/inval.h"
}

#include <utility>

namespace outbox {

namespace {

List* cached = NIL;
uint64 cached_generation = PG_UINT64_MAX; // the catalog generation before `cached` was read

// Reads pg_inherits into `cached`, in TopMemoryContext. Sets cached_generation last, so that after
// an error the list is read again.
void refresh_cached_children(Oid log)
{
    const uint64 generation = pg::catalog_generation();
    List* children = partition_children_of(log);
    const MemoryContext before = MemoryContextSwitchTo(TopMemoryContext);
    list_free(std::exchange(cached, list_copy(children)));
    MemoryContextSwitchTo(before);
    cached_generation = generation;
    list_free(children);
}

// Returns whether this backend has accepted the invalidations of every ATTACH and DETACH that an
// existing snapshot can show; false if unknown, as during recovery. Both commands hold
// ShareUpdateExclusiveLock on the parent until their invalidations are sent, shortly after their
// commit becomes visible. If this function gets the lock, briefly and without waiting, all have
// been sent.
bool has_received_invalidations(Oid table)
{
    if (RecoveryInProgress() || !ConditionalLockRelationOid(table, ShareUpdateExclusiveLock))
        return false;
    UnlockRelationOid(table, ShareUpdateExclusiveLock);
    AcceptInvalidationMessages(); // a lock that is already held accepts none
    return true;
}

} // namespace

List* partition_children_of(Oid table)
{
    return find_inheritance_children(table, NoLock);
}

void refresh_partition_descriptor(Relation table)
{
    List* children = partition_children_of(RelationGetRelid(table));
    if (list_length(children) != RelationGetPartitionDesc(table, true)->nparts) {
        SharedInvalidationMessage message = {};
        message.rc.id = SHAREDINVALRELCACHE_ID;
        message.rc.dbId = MyDatabaseId;
        message.rc.relId = RelationGetRelid(table);
        LocalExecuteInvalidationMessage(&message);
    }
    list_free(children);
}

List* cached_children(Oid log)
{
    if (cached == NIL)
        refresh_cached_children(log);
    return cached;
}

List* current_children(Oid log)
{
    if (!has_received_invalidations(log) || cached_generation != pg::catalog_generation())
        refresh_cached_children(log);
    return cached;
}

} // namespace outbox

// Internal: does refresh_partition_descriptor() for a partitioned table, under AccessShareLock.
// Raises wrong_object_type for other tables.
OUTBOX_SQL_FUNCTION(outbox_refresh_partitions)
{
    return outbox::pg::sql_entry([&] {
        const Relation table = try_relation_open(PG_GETARG_OID(0), AccessShareLock);
        if (table == nullptr || table->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
            ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
                            errmsg("parent must be a partitioned table")));
        outbox::refresh_partition_descriptor(table);
        relation_close(table, NoLock);
        PG_RETURN_VOID();
    });
}
