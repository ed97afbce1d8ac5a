#include "log/partition_children.hpp"

#include "pg/catalog_generation.hpp"

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
uint64 cached_generation = PG_UINT64_MAX; // the catalog's generation before they were looked up

// If this fails, they are to be looked up again.
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

// Whoever attaches or detaches holds such a lock until its transaction has ended, and gives it back
// only when it has told everybody: its rows can be seen a moment before that. Who gets the lock has
// heard of all that could be seen before.
bool has_received_invalidations(Oid table)
{
    if (RecoveryInProgress() || !ConditionalLockRelationOid(table, ShareUpdateExclusiveLock))
        return false;
    UnlockRelationOid(table, ShareUpdateExclusiveLock);
    AcceptInvalidationMessages(); // a lock that this transaction had before did not
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
