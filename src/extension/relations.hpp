// Oids of the extension's schema, owner, tables and sequences in the current database. Looked up
// once per backend and again after a relcache invalidation of any of them.
#pragma once

#include "pg/postgres.hpp"

#include <optional>

namespace outbox {

struct ExtensionRelations {
    Oid schema; // of the public objects; the private ones are in _outbox
    Oid owner;  // of outbox_messages: the role in which the extension runs SQL (as_owner)
    Oid log;
    Oid archive;
    Oid log_sequence;
    Oid token_sequence;
    Oid dedup_keys;
    Oid consumers;
    Oid batches;
    Oid leases;
    Oid retries;
    Oid idempotency_keys;
    Oid upcasters;
    Oid audit_log;
    Oid audit_sequence;
    Oid event_types;
    char schema_name[NAMEDATALEN];
};

// Returns std::nullopt if the extension is not installed in this database or one of the relations
// is missing.
std::optional<ExtensionRelations> find_extension_relations();

// Raises undefined_object if the extension is not installed or not complete.
ExtensionRelations extension_relations();

// Returns the name of the schema of any extension, palloc'd; nullptr if it is not installed.
const char* schema_of_extension(const char* extension);

} // namespace outbox
