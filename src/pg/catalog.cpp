#include "pg/catalog.hpp"

namespace outbox::pg {

namespace {

Objects cached;
bool valid = false;
uint64 generation = 0;
Oid watched_relation = InvalidOid;

void forget()
{
    valid = false;
    ++generation;
}

// The callbacks run wherever the server takes in invalidations: they only set flags.
void relation_changed(Datum, Oid relation)
{
    if (relation == InvalidOid || relation == cached.log || relation == cached.log_sequence ||
        relation == cached.dedup_keys || relation == watched_relation)
        forget();
}

void namespace_changed(Datum, int, uint32)
{
    forget();
}

// Mirrors get_extension_schema(), which PostgreSQL 15 keeps to itself.
Oid schema_of_extension(Oid extension)
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

Oid relation_named(const char* name, Oid schema)
{
    const Oid relation = get_relname_relid(name, schema);
    if (!OidIsValid(relation))
        ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
                        errmsg("relation \"%s\" of extension \"outbox\" is missing", name)));
    return relation;
}

Oid owner_of(Oid relation)
{
    const HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
    if (!HeapTupleIsValid(tuple))
        elog(ERROR, "cache lookup failed for relation %u", relation);
    const Oid owner = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple))->relowner;
    ReleaseSysCache(tuple);
    return owner;
}

Objects look_up()
{
    const Oid extension = get_extension_oid("outbox", true);
    if (!OidIsValid(extension))
        ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
                        errmsg("extension \"outbox\" is not installed in this database"),
                        errhint("Run CREATE EXTENSION outbox CASCADE.")));

    Objects found;
    found.schema = schema_of_extension(extension);
    const char* name = get_namespace_name(found.schema);
    if (name == nullptr)
        elog(ERROR, "cache lookup failed for namespace %u", found.schema);
    strlcpy(found.schema_name, name, NAMEDATALEN);
    found.log = relation_named("outbox_messages", found.schema);
    found.log_sequence = relation_named("outbox_messages_id_seq", found.schema);
    found.dedup_keys = relation_named("outbox_dedup_keys", found.schema);
    found.owner = owner_of(found.log);
    return found;
}

} // namespace

const Objects& objects()
{
    // A look-up can itself take in invalidations; what it found is good only if there were none.
    while (!valid) {
        const uint64 before = generation;
        const Objects found = look_up();
        cached = found;
        valid = generation == before;
    }
    return cached;
}

uint64 catalog_generation()
{
    return generation;
}

void watch_relation(Oid relation)
{
    watched_relation = relation;
}

Oid partman_schema()
{
    const Oid extension = get_extension_oid("pg_partman", true);
    return OidIsValid(extension) ? schema_of_extension(extension) : InvalidOid;
}

void watch_catalog()
{
    CacheRegisterRelcacheCallback(relation_changed, 0);
    CacheRegisterSyscacheCallback(NAMESPACEOID, namespace_changed, 0);
}

} // namespace outbox::pg
