// The main function of the relay and of the maintenance worker, and the settings that both need.
#pragma once

#include "pg/postgres.hpp"

namespace outbox::ipc {

// How one kind of background worker differs from the other.
struct WorkerMain {
    const char* name; // of its memory context; a string literal
    void (*on_sigterm)(SIGNAL_ARGS);
    bool (*attach)(int slot); // false: another process has the slot, or workers are blocked
    void (*run)(int slot);
};

// Sets the signal handlers, connects to the database of the worker slot, attaches and runs. Ends
// the process: with 1 after an error, else with 0, also if the slot is free or attach() returns
// false.
[[noreturn]] void run_worker(const WorkerMain& worker, int slot);

// Sets a GUC of this process, above whatever the configuration, database and role say.
void override_guc(const char* name, const char* value);

// Sets the GUCs on which the transactions of every worker rely, among them an empty
// outbox.tenant_id and no timeouts.
void override_common_gucs(const char* application_name);

} // namespace outbox::ipc
