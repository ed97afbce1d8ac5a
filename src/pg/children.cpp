#include "pg/children.hpp"

extern "C" {
#include "catalog/pg_inherits.h"
#include "partitioning/partdesc.h"
#include "storage/sinval.h"
}

#include <utility>

namespace outbox::pg {

namespace {

List* expected = NIL;

} // namespace

List* children_of(Oid table)
{
    return find_inheritance_children(table, NoLock);
}

void refresh_partitions(Relation table)
{
    List* children = children_of(RelationGetRelid(table));
    if (list_length(children) != RelationGetPartitionDesc(table, true)->nparts) {
        SharedInvalidationMessage message = {};
        message.rc.id = SHAREDINVALRELCACHE_ID;
        message.rc.dbId = MyDatabaseId;
        message.rc.relId = RelationGetRelid(table);
        LocalExecuteInvalidationMessage(&message);
    }
    list_free(children);
}

List* expected_children(Oid table)
{
    if (expected == NIL)
        expect_children(children_of(table));
    return expected;
}

void expect_children(List* children)
{
    const MemoryContext before = MemoryContextSwitchTo(TopMemoryContext);
    list_free(std::exchange(expected, list_copy(children)));
    MemoryContextSwitchTo(before);
}

} // namespace outbox::pg
