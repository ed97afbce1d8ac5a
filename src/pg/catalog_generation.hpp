// A counter of relcache and namespace invalidations, so that values derived from the catalog can be
// cached across statements.
#pragma once

#include "pg/postgres.hpp"

#include <span>

namespace outbox::pg {

// Returns the counter. A value derived from the catalog is valid while the counter is unchanged.
uint64 catalog_generation();

// Replaces the list of relations whose invalidations count, at most 32.
void set_watched_relations(std::span<const Oid> relations);

// The tables of which one partition, the current insert target, is watched.
enum class PartitionWatch { log, audit_log };

// Replaces the watched partition of one of these tables.
void set_watched_partition(PartitionWatch watch, Oid relation);

// Registers the invalidation callbacks. Once, when the library is loaded.
void set_up_catalog_generation();

} // namespace outbox::pg
