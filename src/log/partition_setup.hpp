// Creates the partitions of the log and of the audit log with pg_partman.
#pragma once

#include "extension/relations.hpp"

namespace outbox {

// The log or the audit log: &ExtensionRelations::log or &ExtensionRelations::audit_log.
using PartitionedTable = Oid ExtensionRelations::*;

// Creates the table's first partitions, or missing ones, with _outbox.make_partitions() as the
// owner of the log. If there are none, AccessExclusiveLock on the table serializes concurrent
// callers; a caller that already held a weaker lock could deadlock with another.
void create_partitions(PartitionedTable table);

} // namespace outbox
