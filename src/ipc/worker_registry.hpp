// Who relays which database: a slot per served database, in shared memory, seen by the launcher,
// the worker, those who have something for the worker, and those who want it away for a while.
//
//   free ──launcher: assign──► assigned ──worker: take──► taken ──worker: leave──► assigned, or
//   free
//
// Everything here is atomics: a commit callback reads it, and nothing there may fail.
#pragma once

#include "core/event_type_bloom.hpp"
#include "pg/postgres.hpp"

namespace outbox::ipc {

// What a worker finds to do, beside events.
enum WakeupReason : uint32 {
    reason_sinks_changed = 1,    // sinks have changed
    reason_event_scheduled = 2,  // something was scheduled
    reason_sink_test = 4,        // somebody wants a sink tested
    reason_schedule_refused = 8, // somebody had the log refuse something that was scheduled
};

// Why a slot is without a worker.
enum class WorkerAbsence : uint32 {
    none, // or an error ended the worker
    no_extension,
    no_worker_slot,
    stopped_for_command, // for a command
    terminated,
};

inline constexpr int max_worker_slots = 128;

// ---- the launcher

// The slot of a database, assigned if need be; -1 if there are no more slots.
int assign_slot(Oid database);
void free_slot(int slot);
WorkerAbsence absence_of(int slot);
void set_absence(int slot, WorkerAbsence absence);
bool has_worker(int slot);
bool has_extension(int slot); // and its database has the extension

void attach_launcher();
bool is_launcher_running();

// Databases that somebody has news of since the last call: one, several (then InvalidOid and
// `several`), or none.
struct DatabaseChanges {
    Oid database;
    bool several;
};
DatabaseChanges take_database_changes();

// Has somebody asked for maintenance since the last call?
bool take_maintenance_request(int slot);
bool has_maintenance_worker(int slot);

// Is maintenance due, and no worker slot free for it?
bool lacks_maintenance_worker(int slot);
void set_lacks_maintenance_worker(int slot, bool lacks);

// ---- the worker

Oid database_of_slot(int slot);
bool attach_worker(int slot);          // false if another has it
void mark_extension_present(int slot); // the database has the extension
void detach_worker(int slot);

// What is wanted: only transactions that bring some of it wake the worker.
void set_wanted_event_types(int slot, const EventTypeBloom& types);

// What has come since the last call.
struct WakeupRequests {
    EventTypeBloom types;
    uint32 reasons;
};
WakeupRequests take_wakeup_requests(int slot);

// Is this process the relay of its database?
bool is_relay();

// Has this worker been called for one of these, and not heard it yet?
bool is_wakeup_pending(uint32 reasons);

// Does somebody want the worker of this database away?
bool are_workers_blocked(Oid database);

// This process does maintenance for the slot's database, until it ends. False if another does.
bool attach_maintenance_worker(int slot);

// ---- everybody else

// Wakes this database's worker. Cannot fail.
void wake_relay(const EventTypeBloom& types, uint32 reasons) noexcept;

// The process that relays this database; 0 if there is none.
int relay_pid(Oid database);
WorkerAbsence absence_of_database(Oid database);
bool database_lacks_maintenance_worker(Oid database);

// From now until the end of the transaction no worker connects to this database, and those that are
// connected leave. Waits until they have, for a few seconds.
void block_workers(Oid database);
void unblock_workers() noexcept;

// This database wants maintenance, now. Cannot fail.
void request_maintenance() noexcept;

// The launcher should look at this database.
void notify_launcher(Oid database) noexcept;

void set_up_worker_registry();

} // namespace outbox::ipc
