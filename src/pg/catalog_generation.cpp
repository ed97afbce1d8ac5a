#include "pg/catalog_generation.hpp"

#include <algorithm>

namespace outbox::pg {

namespace {

constexpr std::size_t max_watched = 32;

uint64 generation = 1;
Oid watched[max_watched];
std::size_t watched_count = 0;
Oid extra[] = {InvalidOid, InvalidOid}; // by Watcher

// Callbacks run wherever the server accepts invalidations: they only count.
void relation_changed(Datum, Oid relation)
{
    if (relation == InvalidOid || relation == extra[0] || relation == extra[1] ||
        std::find(watched, watched + watched_count, relation) != watched + watched_count)
        ++generation;
}

void namespace_changed(Datum, int, uint32)
{
    ++generation;
}

} // namespace

uint64 catalog_generation()
{
    return generation;
}

void watch_relations(std::span<const Oid> relations)
{
    Assert(relations.size() <= max_watched);
    watched_count = std::min(relations.size(), max_watched);
    std::copy_n(relations.begin(), watched_count, watched);
}

void watch_relation(Watcher watcher, Oid relation)
{
    extra[static_cast<int>(watcher)] = relation;
}

void watch_catalog()
{
    CacheRegisterRelcacheCallback(relation_changed, 0);
    CacheRegisterSyscacheCallback(NAMESPACEOID, namespace_changed, 0);
}

} // namespace outbox::pg
