#include "log/partition_routing.hpp"

#include "extension/owner_spi.hpp"
#include "extension/relations.hpp"
#include "log/partition_children.hpp"
#include "pg/catalog_generation.hpp"
#include "pg/exceptions.hpp"
#include "pg/subtransaction.hpp"

#include <cstring>

namespace outbox {

namespace {

// Says what the partition's bounds say, and those have led the row here.
constexpr const char* bounds_check_name = "outbox_bounds";

int count_partitions(Oid oid)
{
    const Relation table = table_open(oid, AccessShareLock);
    const int count = RelationGetPartitionDesc(table, true)->nparts;
    table_close(table, AccessShareLock);
    return count;
}

// Locked. Another session may have replaced it while this one waited.
Relation open_partitioned_table(PartitionedTable table)
{
    const Relation relation = try_table_open(extension_relations().*table, RowExclusiveLock);
    return relation != nullptr ? relation
                               : table_open(extension_relations().*table, RowExclusiveLock);
}

// Mirrors get_partition_for_tuple() for a range over one column.
int find_partition_index(Relation table, PartitionDesc partitions, TimestampTz time)
{
    if (partitions->nparts == 0)
        return -1;
    const PartitionKey key = RelationGetPartitionKey(table);
    const PartitionBoundInfo bounds = partitions->boundinfo;
    Datum value = TimestampTzGetDatum(time);
    bool equal;
    const int below = partition_range_datum_bsearch(key->partsupfunc, key->partcollation, bounds, 1,
                                                    &value, &equal);
    const int index = bounds->indexes[below + 1];
    return index < 0 ? bounds->default_index : index;
}

// The partition that takes rows of this time; InvalidOid when there is none.
Oid find_partition(Relation table, TimestampTz time)
{
    PartitionDesc partitions = RelationGetPartitionDesc(table, true);
    int index = find_partition_index(table, partitions, time);
    // What would have been for a partition that the relation cache has missed (pg/children.hpp)
    // seems to be for none, or for the default one.
    if (partitions->nparts > 0 && (index < 0 || index == partitions->boundinfo->default_index)) {
        refresh_partition_descriptor(table);
        partitions = RelationGetPartitionDesc(table, true);
        index = find_partition_index(table, partitions, time);
    }
    return index < 0 ? InvalidOid : partitions->oids[index];
}

// Gives the table its first partitions, or those that are missing. Safe to call by several at once.
void create_partitions(PartitionedTable table)
{
    // The lock comes before the look: of several who find no partition one makes them, and the
    // others see it. The relation cache knows the truth whatever the caller's snapshot is.
    const Oid oid = extension_relations().*table;
    const bool first_time = count_partitions(oid) == 0;
    if (first_time) {
        LockRelationOid(oid, AccessExclusiveLock);
        if (count_partitions(oid) > 0) {
            UnlockRelationOid(oid, AccessExclusiveLock);
            return;
        }
    }

    as_owner([&] {
        static constinit Statement make{"SELECT _outbox.make_partitions($1, $2, $3)",
                                        {TEXTOID, BOOLOID, REGCLASSOID}};
        const char* interval = table == &ExtensionRelations::log
                                   ? GetConfigOption("outbox.partition_interval", false, false)
                                   : "monthly";
        const Datum values[] = {CStringGetTextDatum(interval), BoolGetDatum(first_time),
                                ObjectIdGetDatum(oid)};
        make.execute(values);
    });
}

bool drops_extension(const Node* command)
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

// Otherwise what is theirs would run with the rights of whoever drops the extension.
bool is_partman_trusted()
{
    std::optional<Datum> intruders;
    // It knows the schema by the name that it had in the beginning.
    const ErrorData* error = pg::in_subtransaction([&] {
        static constinit Statement find{"SELECT _outbox.untrusted_partman_roles()"};
        find.execute_with_latest_snapshot(nullptr);
        intruders = ResultRow(0).find(1);
    });
    if (error != nullptr || intruders)
        ereport(WARNING,
                (errmsg("outbox leaves pg_partman's configuration as it is"),
                 error != nullptr ? errdetail("%s", error->message)
                                  : errdetail("It is open to %s.", TextDatumGetCString(*intruders)),
                 errhint("Delete what it has of outbox_messages and audit_log when it is a "
                         "superuser's alone.")));
    return error == nullptr && !intruders;
}

// With names as they are now: nothing here may keep anybody from dropping the extension.
void delete_partman_config()
{
    const char* partman = schema_of_extension("pg_partman");
    const auto objects = find_extension_relations();
    if (partman == nullptr || !objects)
        return;
    as_owner([&] {
        if (!is_partman_trusted())
            return;
        Oid types[] = {TEXTOID, TEXTOID};
        Datum values[] = {CStringGetTextDatum(psprintf("%s.outbox_messages", objects->schema_name)),
                          CStringGetTextDatum(psprintf("%s.audit_log", objects->schema_name))};
        const int result = SPI_execute_with_args(
            psprintf("DELETE FROM %s.part_config WHERE parent_table IN ($1, $2)",
                     quote_identifier(partman)),
            2, types, values, nullptr, false, 0);
        if (result != SPI_OK_DELETE)
            elog(ERROR, "SPI_execute_with_args failed: %s", SPI_result_code_string(result));
    });
}

} // namespace

InsertTarget open_insert_target(PartitionedTable table)
{
    bool created = false;
    for (;;) {
        const Relation relation = open_partitioned_table(table);
        const TimestampTz now = GetCurrentTimestamp();
        const Oid oid = find_partition(relation, now);
        if (OidIsValid(oid)) {
            // While this one waited for its lock, a partition may have come that takes over from
            // the default one: rows against its bounds would be lost to searches and to pg_dump.
            const Relation partition = table_open(oid, RowExclusiveLock);
            if (find_partition(relation, now) == oid)
                return {relation, partition, now};
            table_close(partition, RowExclusiveLock);
            table_close(relation, RowExclusiveLock);
            continue;
        }

        // Whoever makes partitions needs a stronger lock. Two that hold this one and want that one
        // would be a deadlock.
        table_close(relation, RowExclusiveLock);
        if (created)
            ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                            errmsg("%s has no partition for the present time",
                                   table == &ExtensionRelations::log ? "the log" : "the audit log"),
                            errhint("See SELECT * FROM outbox_status().")));
        create_partitions(table);
        created = true;
    }
}

void close_insert_target(const InsertTarget& target)
{
    table_close(target.partition, NoLock);
    table_close(target.table, NoLock);
}

bool DirectInsertCheck::is_allowed(const InsertTarget& target)
{
    const Oid oid = RelationGetRelid(target.partition);
    if (known_partition_ == oid && known_generation_ == pg::catalog_generation())
        return known_answer_;

    pg::set_watched_partition(watcher_, oid);
    const uint64 generation = pg::catalog_generation();
    known_answer_ = !pg::has_insert_triggers(target.table) && target.table->rd_rules == nullptr &&
                    !target.table->rd_rel->relforcerowsecurity &&
                    pg::has_columns(target.partition, columns_, count_) &&
                    pg::allows_direct_insert(target.partition, bounds_check_name);
    known_partition_ = oid;
    known_generation_ = generation;
    return known_answer_;
}

} // namespace outbox

OUTBOX_SQL_FUNCTION(outbox_setup)
{
    return outbox::pg::sql_entry([&] {
        PreventCommandIfReadOnly("outbox_setup()");
        outbox::create_partitions(&outbox::ExtensionRelations::log);
        PG_RETURN_INT32(outbox::count_partitions(outbox::extension_relations().log));
    });
}

OUTBOX_SQL_FUNCTION(audit_setup)
{
    return outbox::pg::sql_entry([&] {
        outbox::create_partitions(&outbox::ExtensionRelations::audit_log);
        PG_RETURN_VOID();
    });
}

OUTBOX_SQL_FUNCTION(outbox_refresh_partitions)
{
    return outbox::pg::sql_entry([&] {
        const Relation table = try_relation_open(PG_GETARG_OID(0), AccessShareLock);
        if (table == nullptr || table->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
            ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
                            errmsg("parent must be a partitioned table")));
        outbox::refresh_partition_descriptor(table);
        relation_close(table, NoLock);
        PG_RETURN_VOID();
    });
}

// Fires before DROP EXTENSION: pg_partman must not go on managing a table that is gone. If the
// command fails, this is rolled back with it.
OUTBOX_SQL_FUNCTION(outbox_before_drop)
{
    return outbox::pg::sql_entry([&]() -> Datum {
        if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
            ereport(ERROR, (errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
                            errmsg("outbox_before_drop() is an event trigger function")));
        const auto* event = reinterpret_cast<EventTriggerData*>(fcinfo->context);
        // Nobody has asked yet whether this session may drop it.
        if (outbox::drops_extension(event->parsetree) &&
            outbox::pg::owns_extension(get_extension_oid("outbox", false)))
            outbox::delete_partman_config();
        PG_RETURN_NULL();
    });
}
