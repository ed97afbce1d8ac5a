// Where the extension's objects are, looked up once per backend and again when any of them changes.
#pragma once

#include "pg/prelude.hpp"

#include <optional>

namespace outbox::pg {

struct Objects {
    Oid schema;
    Oid owner; // of the log; what the extension does for others, it does in this role
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
std::optional<Objects> find_objects();

// Raises undefined_object instead.
Objects objects();

// Counts changes: of the objects, their schema or their definitions. Whatever is derived from the
// catalog and kept beyond a statement is good for as long as this number stays.
uint64 catalog_generation();

// Also count changes of this relation, in place of the one that was watched before for the same.
enum class Watcher { log, audit_log };
void watch_relation(Watcher watcher, Oid relation);

// The schema that an extension lives in, in memory of the current context; nullptr when it is not
// installed.
const char* schema_of(const char* extension);

// Registers the callbacks; once, when the library is loaded.
void watch_catalog();

} // namespace outbox::pg
