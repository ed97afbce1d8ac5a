#include "relay/sink_definitions.hpp"

#include "core/error.hpp"
#include "extension/guc.hpp"
#include "extension/owner_spi.hpp"
#include "pg/datum.hpp"
#include "pg/encoding.hpp"
#include "pg/exceptions.hpp"
#include "sink/make_sink.hpp"

extern "C" {
#include "access/xlog.h"
}

namespace outbox {

namespace {

// System identifier of the cluster and oid of the database, as in _outbox.sinks.home.
Datum database_identity()
{
    return PointerGetDatum(
        cstring_to_text(psprintf(UINT64_FORMAT "/%u", GetSystemIdentifier(), MyDatabaseId)));
}

// Updates _outbox.consumers: pauses the sinks whose home is not this database.
void pause_copied_sinks()
{
    static constinit Statement pause{
        "UPDATE _outbox.consumers c SET paused = true, pause_reason ="
        " 'this is a copy: the sink was made in another database'"
        " FROM _outbox.sinks s"
        " WHERE s.consumer_id = c.consumer_id AND s.home <> $1 AND NOT c.paused",
        {TEXTOID}};
    const Datum values[] = {database_identity()};
    pause.execute_with_latest_snapshot(values);
}

// Returns the types that the filter lists; all types if it lists none.
EventTypeBloom event_types_of(const Filter& filter)
{
    if (filter.event_types.empty())
        return EventTypeBloom::all();
    EventTypeBloom types;
    for (const Datum type : filter.event_types)
        types.add(pg::to_view(type));
    return types;
}

// Columns as views of server memory: no destructor exists while SPI calls can raise errors.
struct SinkRow {
    std::string_view name;
    std::string_view kind;
    std::string_view config;
    Consumer consumer;
};

// Takes the columns of the row, and reads the consumer by its name from the tables.
SinkRow read_sink_row(const ResultRow& row)
{
    const Datum name = row.get(1);
    return {pg::to_view(name), pg::to_view(row.get(2)), pg::to_view(row.get(3)),
            read_consumer(name).consumer};
}

// Copies the row into memory of C++.
SinkDefinition make_definition(const SinkRow& row, const EventTypeBloom& types)
{
    return {row.consumer.id,           row.consumer.filter.tenant_id,
            std::string(row.name),     std::string(row.kind),
            std::string(row.config),   row.consumer.ordered,
            row.consumer.retry_policy, types};
}

} // namespace

void load_sinks(std::vector<SinkDefinition>& sinks)
{
    pause_copied_sinks();
    load_sinks(sinks, 0);
}

void load_sinks(std::vector<SinkDefinition>& sinks, int32 consumer)
{
    static constinit Statement find{
        "SELECT c.name, c.kind, s.config::text FROM _outbox.consumers c"
        " JOIN _outbox.sinks s ON s.consumer_id = c.consumer_id"
        " WHERE CASE WHEN $1 = 0 THEN NOT c.paused ELSE c.consumer_id = $1 END"
        " ORDER BY c.consumer_id",
        {INT4OID}};
    const Datum values[] = {Int32GetDatum(consumer)};
    const uint64 count = find.execute_with_latest_snapshot(values);
    pg::PallocVector<ResultRow> found;
    for (uint64 i = 0; i < count; ++i)
        found.push(ResultRow(i));
    for (const ResultRow& one : found) {
        const SinkRow row = read_sink_row(one);
        const EventTypeBloom types = event_types_of(row.consumer.filter);
        sinks.push_back(make_definition(row, types));
    }
}

void pause_sink(int32 consumer, std::string_view reason)
{
    static constinit Statement pause{"UPDATE _outbox.consumers SET paused = true, pause_reason = $2"
                                     " WHERE consumer_id = $1 AND NOT paused",
                                     {INT4OID, TEXTOID}};
    const Datum values[] = {Int32GetDatum(consumer), pg::error_text_from_utf8(reason)};
    pause.execute_with_latest_snapshot(values);
}

bool is_host_allowlist(const char* list)
{
    try {
        const sink::HostAllowlist hosts(list);
        return true;
    } catch (const std::exception&) {
        return false;
    }
}

} // namespace outbox

// Internal: the identity of this database, which differs in its copies.
OUTBOX_SQL_FUNCTION(outbox_database_identity)
{
    return outbox::pg::sql_entry([&] { return outbox::database_identity(); });
}

// Internal: raises an error if the kind or the config of a sink is invalid.
OUTBOX_SQL_FUNCTION(outbox_check_sink)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        const std::string_view kind = pg::to_view(PG_GETARG_DATUM(0));
        const std::string_view config = pg::to_view(PG_GETARG_DATUM(1));
        sink::check_sink(kind, config, sink::HostAllowlist(settings::http_allowed_hosts));
        PG_RETURN_VOID();
    });
}
