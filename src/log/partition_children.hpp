// Lists the partitions of a table from pg_inherits. The relation cache is not reliable for this: an
// invalidation that arrives while it builds a partition descriptor is lost, and the attached
// partition stays unknown until the next change.
#pragma once

#include "pg/postgres.hpp"

namespace outbox {

// Returns the Oids of the partitions, in a new list. Reads pg_inherits with a new catalog snapshot.
// Takes no locks on the partitions.
List* partition_children_of(Oid table);

// Invalidates the table's relcache entry in this backend, and plans that depend on it, if its
// partition descriptor has missed a partition.
void refresh_partition_descriptor(Relation table);

// Returns the Oids of the log's partitions as this backend has last read them; reads pg_inherits if
// it has none. The list may be outdated. It belongs to the cache, until the next refresh.
List* cached_children(Oid log);

// Returns the Oids of the log's partitions: at least all in which a snapshot taken before this call
// could show a row. Reads pg_inherits only if an invalidation has arrived or may be pending; to
// know that, it briefly takes ShareUpdateExclusiveLock on the log, without waiting. The list
// belongs to the cache, until the next refresh.
List* current_children(Oid log);

} // namespace outbox
