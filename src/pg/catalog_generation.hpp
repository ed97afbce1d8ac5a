// Counts catalog changes, so that whatever is derived from the catalog can be cached across
// statements.
#pragma once

#include "pg/postgres.hpp"

#include <span>

namespace outbox::pg {

// What was derived from the catalog is valid for as long as this number stays the same.
uint64 catalog_generation();

// The relations whose invalidations count, in place of those that were given before.
void set_watched_relations(std::span<const Oid> relations);

// One more for each of these, in place of the one that was watched before for the same.
enum class PartitionWatch { log, audit_log };
void set_watched_partition(PartitionWatch watch, Oid relation);

// Registers the callbacks; once, when the library is loaded.
void set_up_catalog_generation();

} // namespace outbox::pg
