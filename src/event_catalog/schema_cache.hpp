// Per-backend cache of the event catalog, table event_types, with compiled schemas. A relcache
// invalidation of the table clears it.
#pragma once

#include "core/json/json_pointer.hpp"
#include "core/schema/validator.hpp"
#include "pg/postgres.hpp"

#include <memory>
#include <vector>

namespace outbox {

// A registered version of an event type.
struct EventType {
    std::unique_ptr<schema::CompiledSchema> schema; // nullptr: any payload is valid
    std::vector<json::PathPattern> pii_fields;
    std::vector<std::string> pii_pointers; // pii_fields as JSON pointers, for messages
};

// Returns the event type, nullptr if it is not registered. The result is valid until the next call.
// Reads event_types by SPI as the extension's owner unless it is cached. Throws outbox::Error if
// the schema cannot be compiled.
const EventType* find_event_type(Datum event_type, int event_version);

// Returns the functions of the server that schemas use: regular expressions and interrupt checks.
schema::Callbacks schema_callbacks();

// Registers the relcache callback. Called once, when the library is loaded.
void set_up_schema_cache();

} // namespace outbox
