#include "extension/owner_spi.hpp"

#include "extension/relations.hpp"

extern "C" {
#include "catalog/namespace.h"
#include "optimizer/cost.h"
}

#include <cstring>

namespace outbox {

namespace {

constexpr const char* schema_placeholder = "@schema@";

// Returns a palloc'd copy of the text with the extension's schema, quoted, for each @schema@.
char* replace_schema_placeholder(const char* text)
{
    const ExtensionRelations known = extension_relations();
    const char* schema = quote_identifier(known.schema_name);
    StringInfoData sql;
    initStringInfo(&sql);
    while (const char* mark = std::strstr(text, schema_placeholder)) {
        appendBinaryStringInfo(&sql, text, static_cast<int>(mark - text));
        appendStringInfoString(&sql, schema);
        text = mark + std::strlen(schema_placeholder);
    }
    appendStringInfoString(&sql, text);
    return sql.data;
}

// Returns SPI_processed. Raises an error if `result` is an error code of SPI.
uint64 check_spi_result(int result)
{
    if (result < 0)
        elog(ERROR, "SPI failed: %s", SPI_result_code_string(result));
    return SPI_processed;
}

} // namespace

void Statement::prepare()
{
    // The plan cache replans from the same text, which has the schema's name in it; after a rename
    // of the schema the statement is prepared anew. The old plan is not freed: an outer call of the
    // same statement may still be executing it.
    const ExtensionRelations known = extension_relations();
    if (plan_ != nullptr && std::strcmp(schema_, known.schema_name) == 0)
        return;
    // A generic plan: none of the statements gains from planning for its parameter values.
    const SPIPlanPtr plan = SPI_prepare_cursor(replace_schema_placeholder(text_), count_, types_,
                                               CURSOR_OPT_GENERIC_PLAN);
    if (plan == nullptr)
        elog(ERROR, "SPI_prepare_cursor failed: %s", SPI_result_code_string(SPI_result));
    if (SPI_keepplan(plan) != 0)
        elog(ERROR, "SPI_keepplan failed");
    plan_ = plan;
    strlcpy(schema_, known.schema_name, NAMEDATALEN);
}

uint64 Statement::execute(const Datum* values, const char* nulls)
{
    prepare();
    return check_spi_result(SPI_execute_plan(plan_, const_cast<Datum*>(values), nulls, false, 0));
}

uint64 Statement::execute_with_latest_snapshot(const Datum* values, const char* nulls)
{
    prepare();
    // The snapshot must include the changes of this transaction.
    CommandCounterIncrement();
    return check_spi_result(SPI_execute_snapshot(plan_, const_cast<Datum*>(values), nulls,
                                                 GetLatestSnapshot(), InvalidSnapshot, false, true,
                                                 0));
}

namespace detail {

namespace {

// Sets a GUC until the end of the current GUC nest level.
void set_local_guc(const char* name, const char* value)
{
    (void)set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
                            false);
}

} // namespace

SavedRole switch_to_owner()
{
    SavedRole before;
    GetUserIdAndSecContext(&before.user, &before.security_context);
    SetUserIdAndSecContext(extension_relations().owner,
                           before.security_context | SECURITY_LOCAL_USERID_CHANGE);
    before.guc_level = NewGUCNestLevel();
    // The relay sets both once per process (set_worker_gucs), because setting them takes as long as
    // some statements.
    if (std::strcmp(namespace_search_path, owner_search_path) != 0)
        set_local_guc("search_path", owner_search_path);
    // Plans are made while tables are small, and would keep a sequential scan after they have
    // grown.
    if (enable_seqscan)
        set_local_guc("enable_seqscan", "off");
    if (SPI_connect() != SPI_OK_CONNECT)
        elog(ERROR, "SPI_connect failed");
    return before;
}

void switch_back(const SavedRole& before)
{
    if (SPI_finish() != SPI_OK_FINISH)
        elog(ERROR, "SPI_finish failed");
    // `false` reverts the settings as a rollback does: pg_partman sets the session's search_path.
    AtEOXact_GUC(false, before.guc_level);
    SetUserIdAndSecContext(before.user, before.security_context);
}

} // namespace detail

} // namespace outbox
