#include "upcast/upcaster_cache.hpp"

#include "extension/owner_spi.hpp"
#include "pg/catalog_generation.hpp"
#include "pg/datum.hpp"
#include "pg/palloc_vector.hpp"

#include <algorithm>
#include <new>

namespace outbox {

namespace {

struct UpcasterCache {
    MemoryContext memory;
    std::span<UpcasterChain> chains;
    uint64 invalidation_count;
    uint64 generation;
};

std::optional<UpcasterCache> cache;
uint64 invalidation_count = 0; // of pg_proc, pg_authid and pg_auth_members

// Syscache callback. Only counts, because it runs wherever the server accepts invalidations.
void count_invalidation(Datum, int, uint32)
{
    ++invalidation_count;
}

// Returns what disqualifies a function as an upcaster, or nullptr. The text ends an error message,
// or the error of a failed message.
const char* signature_problem(Form_pg_proc function)
{
    if (function->prokind == PROKIND_PROCEDURE)
        return "it is a procedure";
    if (function->prokind == PROKIND_AGGREGATE)
        return "it is an aggregate";
    if (function->prokind == PROKIND_WINDOW)
        return "it is a window function";
    if (function->proretset)
        return "it returns a set";
    if (function->pronargs != 1 || function->proargtypes.values[0] != JSONBOID ||
        function->prorettype != JSONBOID)
        return "it must take one jsonb and return jsonb";
    if (isAnyTempNamespace(function->pronamespace))
        return "it is temporary";
    return nullptr;
}

// Returns the role's name, quoted if necessary, for messages; "that was dropped" if there is none.
const char* role_name(Oid role)
{
    const char* name = GetUserNameFromId(role, true);
    return name == nullptr ? "that was dropped" : quote_identifier(name);
}

// Returns the role of the two whose privileges the other has, so that neither gains rights through
// the other. InvalidOid if neither has the other's privileges.
Oid less_privileged_of(Oid registrar, Oid owner)
{
    if (has_privs_of_role(owner, registrar))
        return registrar;
    return has_privs_of_role(registrar, owner) ? owner : InvalidOid;
}

// Returns the function of this name with one jsonb argument, or InvalidOid.
Oid find_upcaster_function(const char* schema, const char* name)
{
    const Oid space = get_namespace_oid(schema, true);
    const Oid jsonb = JSONBOID;
    if (!OidIsValid(space))
        return InvalidOid;
    return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(name),
                           PointerGetDatum(buildoidvector(&jsonb, 1)), ObjectIdGetDatum(space));
}

// Returns why the function cannot be an upcaster of the registrar, or nullptr. Sets `runs_as` to
// the role that it runs as, or InvalidOid, if the function exists.
const char* find_problem(Oid function, Oid registrar, Oid* runs_as)
{
    const HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    if (!HeapTupleIsValid(tuple))
        return "the function does not exist";
    const auto form = reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple));
    const Oid owner = form->proowner;
    const char* problem = signature_problem(form);
    ReleaseSysCache(tuple);
    *runs_as = less_privileged_of(registrar, owner);
    if (problem != nullptr)
        return problem;
    if (!pg::may_execute(function, registrar))
        return psprintf("permission denied for role %s", role_name(registrar));
    if (!OidIsValid(*runs_as))
        return psprintf("neither role %s, its owner, nor role %s has the privileges of the other",
                        role_name(owner), role_name(registrar));
    return nullptr;
}

// Returns the upcaster of a row of _outbox.upcasters, with texts in the current memory context. If
// it cannot be called, `problem` says why; no error is raised.
Upcaster upcaster_of(const ResultRow& row)
{
    const char* schema = TextDatumGetCString(row.get(3));
    const char* name = TextDatumGetCString(row.get(4));
    const char* registered_by = TextDatumGetCString(row.get(5));
    const Oid function = find_upcaster_function(schema, name);
    const Oid registrar = get_role_oid(registered_by, true);
    Upcaster upcaster = {static_cast<int16>(DatumGetInt32(row.get(2))),
                         psprintf("%s(jsonb)", quote_qualified_identifier(schema, name)), nullptr,
                         InvalidOid, pg::CachedFunctionCall(function)};
    upcaster.problem = OidIsValid(registrar)
                           ? find_problem(function, registrar, &upcaster.runs_as)
                           : psprintf("role %s, which registered it, does not exist",
                                      quote_identifier(registered_by));
    return upcaster;
}

// Reads _outbox.upcasters with a new snapshot. The result is in `memory`, ordered by event type.
std::span<UpcasterChain> read_chains(MemoryContext memory)
{
    static constinit Statement find{
        "SELECT event_type, from_version, function_schema, function_name, registered_by"
        " FROM _outbox.upcasters ORDER BY event_type COLLATE \"C\", from_version"};
    const uint64 count = find.execute_with_latest_snapshot(nullptr);
    pg::PallocVector<ResultRow> rows;
    for (uint64 i = 0; i < count; ++i)
        rows.push(ResultRow(i));
    const MemoryContext before = MemoryContextSwitchTo(memory);
    auto* upcasters = static_cast<Upcaster*>(palloc(sizeof(Upcaster) * (count + 1)));
    pg::PallocVector<UpcasterChain> chains;
    for (uint64 i = 0; i < count; ++i) {
        new (&upcasters[i]) Upcaster(upcaster_of(rows[i]));
        const std::string_view type = pg::to_view(rows[i].get(1));
        if (i > 0 && chains[chains.size() - 1].event_type == type) {
            UpcasterChain& chain = chains[chains.size() - 1];
            chain.upcasters = {chain.upcasters.data(), chain.upcasters.size() + 1};
        } else {
            chains.push({{pnstrdup(type.data(), type.size()), type.size()}, {&upcasters[i], 1}});
        }
    }
    MemoryContextSwitchTo(before);
    return {chains.data(), chains.size()};
}

// Frees the cached plans and the memory of the cache, if there is one.
void drop_cache()
{
    if (!cache)
        return;
    for (const UpcasterChain& chain : cache->chains)
        for (Upcaster& upcaster : chain.upcasters)
            upcaster.call.forget();
    const MemoryContext memory = cache->memory;
    cache.reset();
    MemoryContextDelete(memory);
}

} // namespace

void refresh_upcaster_cache()
{
    if (cache && cache->invalidation_count == invalidation_count &&
        cache->generation == pg::catalog_generation())
        return;
    drop_cache();
    // Reading can accept invalidations, too. With the counts from before, the next call reads
    // again.
    const uint64 before = invalidation_count;
    const uint64 generation = pg::catalog_generation();
    const MemoryContext memory =
        AllocSetContextCreate(CurrentMemoryContext, "outbox upcasters", ALLOCSET_SMALL_SIZES);
    const std::span<UpcasterChain> chains = read_chains(memory);
    MemoryContextSetParent(memory, CacheMemoryContext);
    cache = UpcasterCache{memory, chains, before, generation};
}

Upcaster* UpcasterChain::find_from(int version) const
{
    for (Upcaster& upcaster : upcasters)
        if (upcaster.from_version == version)
            return &upcaster;
    return nullptr;
}

int UpcasterChain::highest_reachable(int version, int wanted) const
{
    while (version < wanted && find_from(version) != nullptr)
        ++version;
    return version;
}

const UpcasterChain* find_upcaster_chain(std::string_view event_type)
{
    const std::span<UpcasterChain> chains = cache->chains;
    const auto found = std::ranges::lower_bound(chains, event_type, {}, &UpcasterChain::event_type);
    return found != chains.end() && found->event_type == event_type ? &*found : nullptr;
}

bool has_upcasters()
{
    return !cache->chains.empty();
}

void check_upcaster_function(Oid function, Oid registrar)
{
    Oid runs_as;
    const char* problem = find_problem(function, registrar, &runs_as);
    if (problem == nullptr)
        return;
    const bool is_there = SearchSysCacheExists1(PROCOID, ObjectIdGetDatum(function));
    const bool is_allowed = is_there && pg::may_execute(function, registrar);
    const char* name =
        is_there ? quote_qualified_identifier(get_namespace_name(get_func_namespace(function)),
                                              get_func_name(function))
                 : psprintf("%u", function);
    ereport(
        ERROR,
        (errcode(!is_there     ? ERRCODE_UNDEFINED_FUNCTION
                 : !is_allowed ? ERRCODE_INSUFFICIENT_PRIVILEGE
                               : ERRCODE_INVALID_PARAMETER_VALUE),
         errmsg("function %s cannot be an upcaster: %s", name, problem),
         is_allowed && !OidIsValid(runs_as)
             ? errhint("Register it as its owner, or as a role with the owner's privileges.")
             : errhint("Name a function that takes and returns jsonb and that you may execute.")));
}

void register_upcaster_callbacks()
{
    for (const auto syscache : {PROCOID, AUTHOID, AUTHMEMROLEMEM})
        CacheRegisterSyscacheCallback(syscache, count_invalidation, 0);
}

} // namespace outbox
