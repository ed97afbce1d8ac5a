#include "log/archive_lookup.hpp"

#include "extension/owner_spi.hpp"
#include "extension/relations.hpp"
#include "pg/catalog_generation.hpp"

namespace outbox {

namespace {

// Returns the greatest last_id in _outbox.archived_partitions, or 0 without rows.
Id read_max_archived_id()
{
    static constinit Statement find{"SELECT max(last_id) FROM _outbox.archived_partitions"};
    find.execute_with_latest_snapshot(nullptr);
    const auto id = ResultRow(0).find(1);
    return id ? DatumGetInt64(*id) : 0;
}

} // namespace

bool archive_has_ids_above(Id id)
{
    static bool is_known = false;
    static uint64 known_generation = 0;
    static Id known_max_id = 0;

    // Archiving or dropping a partition changes the archive's definition, and the relcache
    // invalidation increments the catalog generation.
    const uint64 generation = pg::catalog_generation();
    if (!is_known || generation != known_generation) {
        known_max_id = read_max_archived_id();
        known_generation = generation;
        is_known = generation == pg::catalog_generation();
    }
    return id < known_max_id;
}

pg::PallocVector<Oid> archived_partitions_above(Id id)
{
    static constinit Statement find{
        "SELECT partition FROM _outbox.archived_partitions WHERE last_id > $1"
        " ORDER BY first_id",
        {INT8OID}};
    const Datum values[] = {Int64GetDatum(id)};
    const uint64 count = find.execute_with_latest_snapshot(values);
    pg::PallocVector<Oid> partitions;
    for (uint64 i = 0; i < count; ++i) {
        const char* name = NameStr(*DatumGetName(ResultRow(i).get(1)));
        const Oid partition = get_relname_relid(name, extension_relations().schema);
        if (!OidIsValid(partition))
            ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
                            errmsg("partition \"%s\" of the archive is missing", name),
                            errhint("If it was dropped or renamed, remove its row from "
                                    "outbox_archived_partitions.")));
        partitions.push(partition);
    }
    return partitions;
}

} // namespace outbox
