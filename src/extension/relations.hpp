// Where the extension's objects are, looked up once per backend and again when any of them changes.
#pragma once

#include "pg/postgres.hpp"

#include <optional>

namespace outbox {

struct ExtensionRelations {
    Oid schema; // of what users see; everything else is in _outbox
    Oid owner;  // of the log; what the extension does for others, it does in this role
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

// Empty when the extension is not installed in this database, or not whole.
std::optional<ExtensionRelations> find_extension_relations();

// Raises undefined_object instead.
ExtensionRelations extension_relations();

// The schema that an extension lives in, in memory of the current context; nullptr when it is not
// installed.
const char* schema_of_extension(const char* extension);

} // namespace outbox
