// What is registered in the catalog of events, as enqueue wants it: schemas compiled, once per
// backend.
#pragma once

#include "core/json/json_pointer.hpp"
#include "core/schema/validator.hpp"
#include "pg/postgres.hpp"

#include <memory>
#include <vector>

namespace outbox {

struct EventType {
    std::unique_ptr<schema::CompiledSchema> schema; // or nothing
    std::vector<json::PathPattern> pii_fields;
    std::vector<std::string> pii_pointers; // the same, as they were written
};

// nullptr if it is not registered. Good until the next call. Throws what compiling a schema throws.
const EventType* find_event_type(Datum event_type, int event_version);

// How schemas use the server.
schema::Callbacks schema_callbacks();

// Registers the callback; once, when the library is loaded.
void set_up_schema_cache();

} // namespace outbox
