#include "extension/relations.hpp"

#include "pg/catalog_generation.hpp"

namespace outbox {

namespace {

ExtensionRelations cached;
uint64 cached_generation = 0; // catalog_generation() of `cached`; 0: the cache is empty

// Returns the schema of an extension from pg_extension; InvalidOid if there is none. Mirrors
// get_extension_schema(), which is static in PostgreSQL 15.
Oid schema_oid_of_extension(Oid extension)
{
    Oid schema = InvalidOid;
    ScanKeyData key;
    const Relation catalog = table_open(ExtensionRelationId, AccessShareLock);
    ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ,
                ObjectIdGetDatum(extension));
    const SysScanDesc scan =
        systable_beginscan(catalog, ExtensionOidIndexId, true, nullptr, 1, &key);
    const HeapTuple tuple = systable_getnext(scan);
    if (HeapTupleIsValid(tuple))
        schema = reinterpret_cast<Form_pg_extension>(GETSTRUCT(tuple))->extnamespace;
    systable_endscan(scan);
    table_close(catalog, AccessShareLock);
    return schema;
}

// Returns the owner of a relation. Raises an error if the relation does not exist.
Oid owner_of(Oid relation)
{
    const HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
    if (!HeapTupleIsValid(tuple))
        elog(ERROR, "cache lookup failed for relation %u", relation);
    const Oid owner = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple))->relowner;
    ReleaseSysCache(tuple);
    return owner;
}

} // namespace

std::optional<ExtensionRelations> find_extension_relations()
{
    if (cached_generation == pg::catalog_generation())
        return cached;
    const Oid extension = get_extension_oid("outbox", true);
    if (!OidIsValid(extension))
        return std::nullopt;

    // Catalog lookups process invalidations. The result is cached only if none arrived meanwhile.
    const uint64 before = pg::catalog_generation();
    ExtensionRelations found;
    found.schema = schema_oid_of_extension(extension);
    const char* name = get_namespace_name(found.schema);
    const Oid internals = get_namespace_oid("_outbox", true);
    found.log = get_relname_relid("outbox_messages", found.schema);
    found.archive = get_relname_relid("outbox_messages_archive", found.schema);
    found.log_sequence = get_relname_relid("messages_id_seq", internals);
    found.token_sequence = get_relname_relid("token_seq", internals);
    found.dedup_keys = get_relname_relid("dedup_keys", internals);
    found.consumers = get_relname_relid("consumers", internals);
    found.batches = get_relname_relid("batches", internals);
    found.leases = get_relname_relid("leases", internals);
    found.retries = get_relname_relid("retries", internals);
    found.idempotency_keys = get_relname_relid("idempotency_keys", internals);
    found.upcasters = get_relname_relid("upcasters", internals);
    found.audit_log = get_relname_relid("audit_log", found.schema);
    found.audit_sequence = get_relname_relid("audit_log_id_seq", internals);
    found.event_types = get_relname_relid("event_types", internals);
    if (name == nullptr || !OidIsValid(found.log) || !OidIsValid(found.archive) ||
        !OidIsValid(found.log_sequence) || !OidIsValid(found.token_sequence) ||
        !OidIsValid(found.dedup_keys) || !OidIsValid(found.consumers) ||
        !OidIsValid(found.batches) || !OidIsValid(found.leases) || !OidIsValid(found.retries) ||
        !OidIsValid(found.idempotency_keys) || !OidIsValid(found.upcasters) ||
        !OidIsValid(found.audit_log) || !OidIsValid(found.audit_sequence) ||
        !OidIsValid(found.event_types))
        return std::nullopt;
    strlcpy(found.schema_name, name, NAMEDATALEN);
    found.owner = owner_of(found.log);

    cached = found;
    const Oid watched[] = {found.log,
                           found.archive,
                           found.log_sequence,
                           found.token_sequence,
                           found.dedup_keys,
                           found.consumers,
                           found.batches,
                           found.leases,
                           found.retries,
                           found.idempotency_keys,
                           found.upcasters,
                           found.audit_log,
                           found.audit_sequence,
                           found.event_types};
    pg::set_watched_relations(watched);
    cached_generation = before == pg::catalog_generation() ? before : 0;
    return found;
}

ExtensionRelations extension_relations()
{
    const auto found = find_extension_relations();
    if (!found)
        ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
                        errmsg("extension \"outbox\" is not installed in this database, or "
                               "one of its tables has been renamed"),
                        errhint("Run CREATE EXTENSION outbox CASCADE, or rename the table back.")));
    return *found;
}

const char* schema_of_extension(const char* extension)
{
    const Oid oid = get_extension_oid(extension, true);
    return OidIsValid(oid) ? get_namespace_name(schema_oid_of_extension(oid)) : nullptr;
}

} // namespace outbox
