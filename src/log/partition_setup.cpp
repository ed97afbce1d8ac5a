#include "log/partition_setup.hpp"

#include "extension/owner_spi.hpp"
#include "pg/catalog_generation.hpp"
#include "pg/exceptions.hpp"
#include "pg/subtransaction.hpp"

#include <cstring>

namespace outbox {

namespace {

// Returns the number of partitions that the relcache has, under AccessShareLock, which is released.
int count_partitions(Oid oid)
{
    const Relation table = table_open(oid, AccessShareLock);
    const int count = RelationGetPartitionDesc(table, true)->nparts;
    table_close(table, AccessShareLock);
    return count;
}

// Returns whether the command is DROP EXTENSION with outbox in its list.
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

// Returns whether only superusers can change what runs when pg_partman's configuration is written.
// Otherwise their code would run with the rights of the role that drops the extension. Raises a
// WARNING if not, or if the check fails. Call inside as_owner().
bool is_partman_trusted()
{
    std::optional<Datum> untrusted_roles;
    // The function names the extension's schema as it was at CREATE EXTENSION, and raises an error
    // if it was renamed.
    const ErrorData* error = pg::in_subtransaction([&] {
        static constinit Statement find{"SELECT _outbox.untrusted_partman_roles()"};
        find.execute_with_latest_snapshot(nullptr);
        untrusted_roles = ResultRow(0).find(1);
    });
    if (error != nullptr || untrusted_roles)
        ereport(
            WARNING,
            (errmsg("rows of outbox remain in pg_partman's configuration"),
             error != nullptr ? errdetail("%s", error->message)
                              : errdetail("The configuration is open to %s.",
                                          TextDatumGetCString(*untrusted_roles)),
             errhint("Delete the rows of outbox_messages and audit_log from part_config when only "
                     "superusers can write to it.")));
    return error == nullptr && !untrusted_roles;
}

// Deletes the rows of outbox_messages and audit_log from pg_partman's part_config, as the owner of
// the log, unless is_partman_trusted() warns. Looks up the current names of the schemas. Does
// nothing if pg_partman is not installed or a relation of outbox is missing, so that DROP EXTENSION
// succeeds.
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

void create_partitions(PartitionedTable table)
{
    // Partitions are counted again behind the lock: of several sessions that find none, one creates
    // them. The relation cache is up to date whatever the caller's snapshot is.
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

// Event trigger that fires before DROP EXTENSION and removes our tables from pg_partman's
// configuration, or pg_partman would go on managing dropped tables. If the command fails, this is
// rolled back with it.
OUTBOX_SQL_FUNCTION(outbox_before_drop)
{
    return outbox::pg::sql_entry([&]() -> Datum {
        if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
            ereport(ERROR, (errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
                            errmsg("outbox_before_drop() is an event trigger function")));
        const auto* event = reinterpret_cast<EventTriggerData*>(fcinfo->context);
        // The trigger fires before the server checks whether the session may drop the extension.
        if (outbox::drops_extension(event->parsetree) &&
            outbox::pg::owns_extension(get_extension_oid("outbox", false)))
            outbox::delete_partman_config();
        PG_RETURN_NULL();
    });
}
