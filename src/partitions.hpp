// The log's partitions, made by pg_partman.
#pragma once

#include "pg/prelude.hpp"

namespace outbox {

// The partition that takes rows of this time; InvalidOid when there is none. The caller holds a
// lock on the log.
Oid partition_for(Relation log, TimestampTz time);

// Gives the log its first partitions, or those that are missing. Safe to call by several at once.
void set_up_partitions();

} // namespace outbox
