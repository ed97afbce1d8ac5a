// The partitions of a table, by the catalog. The relation cache must not be asked: an invalidation
// that arrives while it describes the partitions is lost on it, and a partition that was attached
// meanwhile stays unknown until something else changes.
#pragma once

#include "pg/postgres.hpp"

namespace outbox {

// As the catalog has them at this moment.
List* partition_children_of(Oid table);

// Has the relation cache look again if it has missed one, and the plans that were made with it.
void refresh_partition_descriptor(Relation table);

// Those of the log that the session has seen last: only a guess.
List* cached_children(Oid log);

// Those of the log that are there now: all in which a snapshot taken before could show a row. The
// catalog is asked only if something may have changed.
List* current_children(Oid log);

} // namespace outbox
