#include "pg/catalog_generation.hpp"

#include <algorithm>

namespace outbox::pg {

namespace {

constexpr std::size_t max_watched = 32;

uint64 generation = 1;
Oid watched_relations[max_watched];
std::size_t watched_count = 0;
Oid watched_partitions[] = {InvalidOid, InvalidOid}; // by PartitionWatch

// Relcache callback: counts invalidations of watched relations, and of all relations (InvalidOid).
// Callbacks can run inside any catalog access, so they only count.
void on_relcache_invalidation(Datum, Oid relation)
{
    if (relation == InvalidOid || relation == watched_partitions[0] ||
        relation == watched_partitions[1] ||
        std::find(watched_relations, watched_relations + watched_count, relation) !=
            watched_relations + watched_count)
        ++generation;
}

// Syscache callback: counts every change in pg_namespace.
void on_namespace_invalidation(Datum, int, uint32)
{
    ++generation;
}

} // namespace

uint64 catalog_generation()
{
    return generation;
}

void set_watched_relations(std::span<const Oid> relations)
{
    Assert(relations.size() <= max_watched);
    watched_count = std::min(relations.size(), max_watched);
    std::copy_n(relations.begin(), watched_count, watched_relations);
}

void set_watched_partition(PartitionWatch watch, Oid relation)
{
    watched_partitions[static_cast<int>(watch)] = relation;
}

void set_up_catalog_generation()
{
    CacheRegisterRelcacheCallback(on_relcache_invalidation, 0);
    CacheRegisterSyscacheCallback(NAMESPACEOID, on_namespace_invalidation, 0);
}

} // namespace outbox::pg
