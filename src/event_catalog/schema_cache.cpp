#include "event_catalog/schema_cache.hpp"

#include "core/error.hpp"
#include "extension/owner_spi.hpp"
#include "extension/relations.hpp"
#include "pg/datum.hpp"
#include "pg/exceptions.hpp"

extern "C" {
#include "catalog/pg_collation.h"
}

#include <map>

namespace outbox {

namespace {

// Number of relcache invalidations of event_types. An invalidation arrives after the change became
// visible, or when it was rolled back, so rows read at a lower count are stale.
uint64 invalidation_count = 0;
Oid watched_table = InvalidOid;

// Relcache callback: counts the invalidations of event_types, and of all relations (InvalidOid).
void on_relcache_invalidation(Datum, Oid relation)
{
    if (relation == InvalidOid || relation == watched_table)
        ++invalidation_count;
}

// Limit of the cache. Unregistered names are cached too, and clients can send any number of them.
constexpr std::size_t max_cached_types = 10000;

using EventTypeKey = std::pair<std::string, int>;
using EventTypeMap = std::map<EventTypeKey, std::unique_ptr<EventType>>;

Statement select_type("SELECT json_schema::text, pii_fields FROM _outbox.event_types "
                      "WHERE event_type = $1 AND event_version = $2",
                      {TEXTOID, INT4OID});

// A row of event_types, in the memory context of the caller.
struct EventTypeRow {
    bool is_there = false;
    bool has_schema = false;
    std::string_view schema;
    std::span<const Datum> pii_fields;
};

// Returns a detoasted copy of a varlena value in `memory`.
Datum copy_to_context(Datum value, MemoryContext memory)
{
    const MemoryContext before = MemoryContextSwitchTo(memory);
    const Datum copy = PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
    MemoryContextSwitchTo(before);
    return copy;
}

// Reads a row of event_types by SPI as the extension's owner, with the latest snapshot: the cache
// outlives the transaction, so its content must not depend on the transaction's snapshot.
EventTypeRow read_row(Datum event_type, int event_version)
{
    const MemoryContext memory = CurrentMemoryContext;
    Datum schema = 0;
    Datum pii_fields = 0;
    EventTypeRow row;
    watched_table = extension_relations().event_types;
    as_owner([&] {
        const Datum values[] = {event_type, Int32GetDatum(event_version)};
        row.is_there = select_type.execute_with_latest_snapshot(values) > 0;
        if (!row.is_there)
            return;
        const ResultRow found(0);
        if (const auto text = found.find(1))
            schema = copy_to_context(*text, memory);
        pii_fields = copy_to_context(found.get(2), memory);
    });
    row.has_schema = schema != 0;
    if (row.has_schema)
        row.schema = pg::to_utf8(pg::to_view(schema));
    if (row.is_there)
        row.pii_fields = pg::from_text_array(pii_fields, "pii_fields");
    return row;
}

// Makes an EventType on the C++ heap: compiles the row's schema, if it has one, and parses the JSON
// pointers of its PII fields. Returns nullptr if there is no row. Throws outbox::Error if the
// schema cannot be compiled.
std::unique_ptr<EventType> make_event_type(const EventTypeRow& row)
{
    if (!row.is_there)
        return nullptr;
    auto type = std::make_unique<EventType>();
    if (row.has_schema)
        type->schema = std::make_unique<schema::CompiledSchema>(row.schema, schema_callbacks());
    for (const Datum field : row.pii_fields) {
        const std::string_view pointer =
            pg::guarded_call([&] { return pg::to_utf8(pg::to_view(field)); });
        type->pii_pointers.emplace_back(pointer);
        type->pii_fields.emplace_back(json::parse_pointer(pointer).value());
    }
    return type;
}

// Matches UTF-8 text with the server's regex engine. Throws ServerError for an invalid pattern.
bool matches_regex(std::string_view pattern, std::string_view text)
{
    const auto to_text = [](std::string_view given) {
        const std::string_view converted = pg::from_utf8(given);
        return PointerGetDatum(
            cstring_to_text_with_len(converted.data(), static_cast<int>(converted.size())));
    };
    return pg::guarded_call([&] {
        // In the C collation, classes such as \d match ASCII only, as in ECMA-262.
        return DatumGetBool(
            DirectFunctionCall2Coll(textregexeq, C_COLLATION_OID, to_text(text), to_text(pattern)));
    });
}

// Throws outbox::Error (54001) near max_stack_depth, and ServerError if the query was canceled.
void check_interrupts()
{
    if (stack_is_too_deep())
        throw Error("54001", "payload is nested too deeply for a schema that refers to itself", {},
                    "Send a payload with fewer levels, or raise max_stack_depth.");
    if (INTERRUPTS_PENDING_CONDITION())
        pg::guarded_call([] { CHECK_FOR_INTERRUPTS(); });
}

} // namespace

schema::Callbacks schema_callbacks()
{
    return {matches_regex, check_interrupts};
}

const EventType* find_event_type(Datum event_type, int event_version)
{
    static EventTypeMap* cache = nullptr;
    static uint64 known_invalidation_count = 0;
    if (cache == nullptr)
        cache = new EventTypeMap;
    // The callback cannot clear the map: invalidations also arrive while an EventType is in use.
    if (known_invalidation_count != invalidation_count || cache->size() >= max_cached_types)
        cache->clear();
    known_invalidation_count = invalidation_count;

    const EventTypeKey name(pg::to_view(event_type), event_version);
    auto found = cache->find(name);
    if (found != cache->end())
        return found->second.get();
    const EventTypeRow row = pg::guarded_call([&] { return read_row(event_type, event_version); });
    found = cache->emplace(name, make_event_type(row)).first;
    return found->second.get();
}

void set_up_schema_cache()
{
    CacheRegisterRelcacheCallback(on_relcache_invalidation, 0);
}

} // namespace outbox
