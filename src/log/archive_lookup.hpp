// Answers for a reader of the log: which archived partitions hold ids above its position?
#pragma once

#include "core/id_ranges.hpp"
#include "pg/palloc_vector.hpp"

namespace outbox {

// Returns whether the archive holds ids above this one. The greatest archived id is cached per
// backend until the archive's definition changes, because every claim asks. The caller holds a lock
// on the log, so that no partition is being archived. Call inside as_owner().
bool archive_has_ids_above(Id id);

// Returns the partitions in _outbox.archived_partitions with ids above this one, ordered by their
// first id, and opens none. The caller holds a lock on the archive, too. Raises undefined_table if
// a partition is missing. Call inside as_owner().
pg::PallocVector<Oid> archived_partitions_above(Id id);

} // namespace outbox
