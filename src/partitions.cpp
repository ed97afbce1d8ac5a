#include "partitions.hpp"

#include "pg/catalog.hpp"
#include "pg/guard.hpp"
#include "pg/spi.hpp"

#include <cstring>

namespace outbox {

namespace {

int partition_count()
{
    const Relation log = table_open(pg::objects().log, AccessShareLock);
    const int count = RelationGetPartitionDesc(log, true)->nparts;
    table_close(log, AccessShareLock);
    return count;
}

bool drops_outbox(const Node* command)
{
    if (!IsA(command, DropStmt))
        return false;
    const auto* drop = reinterpret_cast<const DropStmt*>(command);
    if (drop->removeType != OBJECT_EXTENSION)
        return false;
    ListCell* cell;
    foreach (cell, drop->objects)
        if (std::strcmp(strVal(lfirst(cell)), "outbox") == 0)
            return true;
    return false;
}

// With names as they are now: nothing here may keep anybody from dropping the extension.
void forget_partitions()
{
    const char* partman = pg::schema_of("pg_partman");
    const auto objects = pg::find_objects();
    if (partman == nullptr || !objects)
        return;
    pg::as_owner([&] {
        Oid types[] = {TEXTOID};
        Datum values[] = {
            CStringGetTextDatum(psprintf("%s.outbox_messages", objects->schema_name))};
        const int result =
            SPI_execute_with_args(psprintf("DELETE FROM %s.part_config WHERE parent_table = $1",
                                           quote_identifier(partman)),
                                  1, types, values, nullptr, false, 0);
        if (result != SPI_OK_DELETE)
            elog(ERROR, "SPI_execute_with_args failed: %s", SPI_result_code_string(result));
    });
}

} // namespace

Oid partition_for(Relation log, TimestampTz time)
{
    const PartitionDesc partitions = RelationGetPartitionDesc(log, true);
    if (partitions->nparts == 0)
        return InvalidOid;

    // Mirrors get_partition_for_tuple() for a range over one column.
    const PartitionKey key = RelationGetPartitionKey(log);
    const PartitionBoundInfo bounds = partitions->boundinfo;
    Datum value = TimestampTzGetDatum(time);
    bool equal;
    const int below = partition_range_datum_bsearch(key->partsupfunc, key->partcollation, bounds, 1,
                                                    &value, &equal);
    int index = bounds->indexes[below + 1];
    if (index < 0)
        index = bounds->default_index;
    return index < 0 ? InvalidOid : partitions->oids[index];
}

void set_up_partitions()
{
    // The lock comes before the look: of several who find no partition one makes them, and the
    // others see it. The relation cache knows the truth whatever the caller's snapshot is.
    const Oid log = pg::objects().log;
    const bool first_time = partition_count() == 0;
    if (first_time) {
        LockRelationOid(log, AccessExclusiveLock);
        if (partition_count() > 0) {
            UnlockRelationOid(log, AccessExclusiveLock);
            return;
        }
    }

    pg::as_owner([&] {
        static constinit pg::Statement make{"SELECT @schema@.outbox_make_partitions($1, $2)",
                                            {TEXTOID, BOOLOID}};
        const Datum values[] = {
            CStringGetTextDatum(GetConfigOption("outbox.partition_interval", false, false)),
            BoolGetDatum(first_time)};
        make.execute(values);
    });
}

} // namespace outbox

OUTBOX_SQL_FUNCTION(outbox_setup)
{
    return outbox::pg::entry([&] {
        PreventCommandIfReadOnly("outbox_setup()");
        outbox::set_up_partitions();
        PG_RETURN_INT32(outbox::partition_count());
    });
}

// Fires before DROP EXTENSION: pg_partman must not go on managing a table that is gone. If the
// command fails, this is rolled back with it.
OUTBOX_SQL_FUNCTION(outbox_before_drop)
{
    return outbox::pg::entry([&]() -> Datum {
        if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
            ereport(ERROR, (errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
                            errmsg("outbox_before_drop() is an event trigger function")));
        const auto* event = reinterpret_cast<EventTriggerData*>(fcinfo->context);
        if (outbox::drops_outbox(event->parsetree))
            outbox::forget_partitions();
        PG_RETURN_NULL();
    });
}
