// The relay: one background worker per database, which sends events to its sinks.
#pragma once

#include "pg/postgres.hpp"

namespace outbox {

// Serves the database that this process is connected to, until SIGTERM, until a command blocks its
// workers, until the extension is dropped or until the settings exclude the database. Writes the
// reason into the worker slot.
void run_relay(int slot);

// Sets the GUCs of this process that the relay's transactions rely on: synchronous_commit,
// lock_timeout, search_path and others. Call again after each reload.
void set_worker_gucs();

// Returns whether outbox.relay and outbox.databases include the database. nullptr, a name that is
// not known yet, is in every list.
bool is_database_served(const char* database);

} // namespace outbox
