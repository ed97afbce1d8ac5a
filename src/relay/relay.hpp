// The relay: brings the events of one database to its sinks.
#pragma once

#include "pg/postgres.hpp"

namespace outbox {

// Serves the database that this worker is connected to, until it is asked to leave.
void run_relay(int slot);

// What the relay's transactions count on, whatever the configuration says.
void set_worker_gucs();

// Is this database one that the settings want served?
bool is_database_served(const char* database);

} // namespace outbox
