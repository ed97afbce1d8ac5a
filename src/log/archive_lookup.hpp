// The archive, as those see it who read on in the log: has it anything that they have not read?
#pragma once

#include "core/id_ranges.hpp"
#include "pg/palloc_vector.hpp"

namespace outbox {

// Is there anything in the archive above this id? Remembered, since every claim asks. The caller
// holds a lock on the log, so that nothing is being archived. Inside pg::as_owner().
bool archive_has_ids_above(Id id);

// The partitions that it is in. The caller holds a lock on the archive, too.
pg::PallocVector<Oid> archived_partitions_above(Id id);

} // namespace outbox
