// Appends rows to audit_log, in the transaction of the caller.
#include "extension/argument_checks.hpp"
#include "extension/owner_spi.hpp"
#include "extension/tenant.hpp"
#include "log/partition_routing.hpp"
#include "pg/arguments.hpp"
#include "pg/catalog_generation.hpp"
#include "pg/exceptions.hpp"
#include "pg/sequence.hpp"

namespace outbox {

namespace {

// The columns of the audit log, in the order of the install script.
enum Column {
    col_xid,
    col_id,
    col_occurred_at,
    col_tenant_id,
    col_actor,
    col_action,
    col_entity_type,
    col_entity_id,
    col_before,
    col_after,
    col_context,
    column_count
};

constexpr pg::ColumnSpec columns[column_count] = {
    {"xid", XID8OID},          {"id", INT8OID},        {"occurred_at", TIMESTAMPTZOID},
    {"tenant_id", INT8OID},    {"actor", TEXTOID},     {"action", TEXTOID},
    {"entity_type", TEXTOID},  {"entity_id", TEXTOID}, {"before", JSONBOID, true},
    {"after", JSONBOID, true}, {"context", JSONBOID},
};

// The arguments of audit_record(), in their order.
enum Argument {
    arg_actor,
    arg_action,
    arg_entity_type,
    arg_entity_id,
    arg_before,
    arg_after,
    arg_context,
    arg_tenant_id,
};

// A row to insert. xid, id and occurred_at are set when it is inserted. NULLs are marked by 'n', as
// SPI expects.
struct AuditRow {
    Datum values[column_count] = {};
    char nulls[column_count] = {};

    void set(Column column, const std::optional<Datum>& value)
    {
        values[column] = value.value_or(Datum{0});
        nulls[column] = value ? ' ' : 'n';
    }
};

// Makes the row from the arguments of audit_record(). Raises an error for a NULL, empty or long
// name, a large value, a context that is no object, and another tenant than the session's.
AuditRow make_audit_row(FunctionCallInfo fcinfo)
{
    const auto tenant = pg::optional_argument(fcinfo, arg_tenant_id);
    const auto name = [&](const char* argument, int number) {
        return required_name(argument, pg::optional_argument(fcinfo, number));
    };
    const auto state = [&](const char* argument, int number) {
        const auto value = pg::optional_argument(fcinfo, number);
        if (value)
            check_value_size(argument, *value);
        return value;
    };

    AuditRow row;
    row.set(col_tenant_id, Int64GetDatum(effective_tenant(
                               tenant ? std::optional(DatumGetInt64(*tenant)) : std::nullopt)));
    row.set(col_actor, name("actor", arg_actor));
    row.set(col_action, name("action", arg_action));
    row.set(col_entity_type, name("entity_type", arg_entity_type));
    row.set(col_entity_id, name("entity_id", arg_entity_id));
    row.set(col_before, state("before", arg_before));
    row.set(col_after, state("after", arg_after));
    row.set(col_context,
            checked_json_object("context", pg::optional_argument(fcinfo, arg_context)));
    return row;
}

// Assigns the transaction its xid, then draws an id from audit_log_id_seq. audit_chain_rows()
// relies on this order: ids up to a value of the sequence belong to xids below a next xid that is
// read after it.
int64 next_audit_id()
{
    (void)GetTopTransactionId();
    return pg::draw_values(extension_relations().audit_sequence, 1);
}

// Inserts into the partition with heap and index access methods, without the executor. Sets xid, id
// and occurred_at of the row and returns the id.
int64 append_directly(const InsertTarget& target, AuditRow& row)
{
    const int64 id = next_audit_id();
    row.set(col_xid, FullTransactionIdGetDatum(GetTopFullTransactionId()));
    row.set(col_id, Int64GetDatum(id));
    row.set(col_occurred_at, TimestampTzGetDatum(target.now));
    pg::TableWriter writer = pg::open_table_writer(target.partition, 1);
    TupleTableSlot* slot = pg::clear_slot(writer, 0);
    for (int i = 0; i < column_count; ++i) {
        slot->tts_values[i] = row.values[i];
        slot->tts_isnull[i] = row.nulls[i] == 'n';
    }
    ExecStoreVirtualTuple(slot);
    pg::insert_rows(writer, 1);
    pg::close_table_writer(writer);
    return id;
}

// Inserts by SPI as the extension's owner and returns the id: for an audit_log to which a user has
// added a trigger, a column or a policy. Raises an error if a trigger or rule suppresses the row.
int64 append_by_statement(const AuditRow& row)
{
    static constinit Statement insert{
        "INSERT INTO @schema@.audit_log (tenant_id, actor, action, entity_type, entity_id, before,"
        " after, context) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id",
        {INT8OID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, JSONBOID, JSONBOID, JSONBOID}};
    int64 id = 0;
    as_owner([&] {
        insert.execute(row.values + col_tenant_id, row.nulls + col_tenant_id);
        // A user's BEFORE trigger or rule may have suppressed the insert.
        if (SPI_processed == 0)
            ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                            errmsg("the row was not inserted into audit_log"),
                            errhint("Check the triggers and rules of audit_log.")));
        id = DatumGetInt64(ResultRow(0).get(1));
    });
    return id;
}

// Inserts the row into audit_log, directly where that is allowed, and returns its id.
int64 append_audit_row(AuditRow& row)
{
    static constinit DirectInsertCheck direct_insert{pg::PartitionWatch::audit_log, columns};
    const InsertTarget target = open_insert_target(&ExtensionRelations::audit_log);
    const int64 id =
        direct_insert.is_allowed(target) ? append_directly(target, row) : append_by_statement(row);
    close_insert_target(target);
    return id;
}

} // namespace

} // namespace outbox

// Appends a row to audit_log, in the transaction of the caller, and returns its id.
OUTBOX_SQL_FUNCTION(audit_record)
{
    return outbox::pg::sql_entry([&] {
        PreventCommandIfReadOnly("audit_record()");
        outbox::AuditRow row = outbox::make_audit_row(fcinfo);
        PG_RETURN_INT64(outbox::append_audit_row(row));
    });
}

// Default of audit_log.id: a direct INSERT draws the id after the xid, too.
OUTBOX_SQL_FUNCTION(audit_next_id)
{
    return outbox::pg::sql_entry([&] {
        PreventCommandIfReadOnly("audit_next_id()");
        PG_RETURN_INT64(outbox::next_audit_id());
    });
}

// Returns the next xid to be assigned: all xids assigned so far are less.
OUTBOX_SQL_FUNCTION(audit_next_xid)
{
    return outbox::pg::sql_entry([&] { PG_RETURN_FULLTRANSACTIONID(ReadNextFullTransactionId()); });
}
