// Worker slots in shared memory: one per database that the launcher serves, with the pids of its
// relay and its maintenance worker and with requests of other backends for them.
//
//   free ──assign_slot──► assigned ──attach_worker──► attached
//     ▲                   │     ▲                         │
//     └────free_slot──────┘     └──────detach_worker──────┘
//
// The launcher calls assign_slot() and free_slot(), the relay attaches and detaches.
//
// Every field is an atomic and no function takes a lock: commit callbacks call this file, and
// nothing may fail there.
#pragma once

#include "core/event_type_bloom.hpp"
#include "pg/postgres.hpp"

namespace outbox::ipc {

// Bits that tell the relay why it was woken, other than new events.
enum WakeupReason : uint32 {
    reason_sinks_changed = 1,    // definition or state of sinks changed
    reason_event_scheduled = 2,  // outbox_scheduled has a new row
    reason_sink_test = 4,        // outbox_test_sink() waits for a test
    reason_schedule_refused = 8, // the log rejected a scheduled event in outbox_release_due()
};

// Why an assigned slot has no relay.
enum class WorkerAbsence : uint32 {
    none, // not started yet, running, or ended by an error
    no_extension,
    no_worker_slot,      // max_worker_processes is exhausted
    stopped_for_command, // block_workers(): a command needs the database
    terminated,          // SIGTERM
};

inline constexpr int max_worker_slots = 128;

// ---- the launcher

// Returns the slot of a database, assigning a free one if needed; -1 if all slots are assigned.
int assign_slot(Oid database);
// Makes the slot free for another database.
void free_slot(int slot);

// Return and set the reason why the slot has no relay: the last relay left it behind, or the
// launcher has set it. attach_worker() clears it.
WorkerAbsence absence_of(int slot);
void set_absence(int slot, WorkerAbsence absence);

// Returns true if a relay is attached to the slot.
bool has_worker(int slot);

// Returns true if the relay has found the extension in the slot's database.
bool has_extension(int slot);

// Publishes pid and latch of this process as the launcher's, until it exits.
void attach_launcher();

// Returns true if a launcher is attached; false without shared memory.
bool is_launcher_running();

// Databases reported by notify_launcher(). `several`: more than one was, and `database` is one of
// them; otherwise InvalidOid means none.
struct DatabaseChanges {
    Oid database;
    bool several;
};

// Returns and clears the databases reported since the last call.
DatabaseChanges take_database_changes();

// Returns true if request_maintenance() was called for the slot's database since the last call, and
// clears the request.
bool take_maintenance_request(int slot);

// Returns true if a maintenance worker is attached to the slot.
bool has_maintenance_worker(int slot);

// Return and set a flag for outbox_status(): maintenance is due and max_worker_processes is
// exhausted.
bool lacks_maintenance_worker(int slot);
void set_lacks_maintenance_worker(int slot, bool lacks);

// ---- the relay and the maintenance worker

// Returns the slot's database; InvalidOid if the slot is free.
Oid database_of_slot(int slot);

// Attaches this process as the relay, until it detaches or exits: publishes its pid and latch and
// clears the reason of absence. Returns false if another process is attached.
bool attach_worker(int slot);

// Records that the database has the extension. The first call after attach_worker() wakes the
// launcher, which can start maintenance then.
void mark_extension_present(int slot);

// Clears the relay's pid, latch and wanted event types, and wakes the launcher. Does nothing if
// this process is not attached.
void detach_worker(int slot);

// Publishes the event types that the sinks want: commits of other types do not wake the relay.
void set_wanted_event_types(int slot, const EventTypeBloom& types);

// Why other backends woke the relay: wanted event types that were committed, and other reasons.
struct WakeupRequests {
    EventTypeBloom types;
    uint32 reasons;
};

// Returns and clears the requests since the last call.
WakeupRequests take_wakeup_requests(int slot);

// Returns true if this process is the relay of its database.
bool is_relay();

// Returns true if one of these reasons was given and the relay has not taken it, or if this
// database has no slot.
bool is_wakeup_pending(uint32 reasons);

// Returns true while a session has blocked the workers of this database.
bool are_workers_blocked(Oid database);

// Attaches this process as the maintenance worker, until it exits. Returns false if another process
// is attached.
bool attach_maintenance_worker(int slot);

// ---- other backends

// Records the reasons and the wanted ones of the types for the relay of this database, and sets its
// latch if there are any. The relay's own commits do not wake it. For commit callbacks: raises no
// error.
void wake_relay(const EventTypeBloom& types, uint32 reasons) noexcept;

// Returns the pid of the database's relay; 0 if there is none, or no slot.
int relay_pid(Oid database);

// Returns the reason why the database has no relay; WorkerAbsence::none without a slot.
WorkerAbsence absence_of_database(Oid database);

// Returns true if maintenance of the database is due and max_worker_processes is exhausted.
bool database_lacks_maintenance_worker(Oid database);

// Keeps the workers of a database away until the end of the transaction: the launcher starts none,
// and attached ones are told to exit. Waits up to 5 s until they have. If too many databases are
// blocked, it only tells the workers to exit.
void block_workers(Oid database);

// Ends all blocks of this session and reports their databases to the launcher.
void unblock_workers() noexcept;

// Requests a maintenance run for this database, if it has a slot. For commit callbacks: raises no
// error.
void request_maintenance() noexcept;

// Reports a changed database to the launcher and sets its latch. Does nothing without shared
// memory. Raises no error.
void notify_launcher(Oid database) noexcept;

// Requests the shared memory. Once, when the library is loaded.
void set_up_worker_registry();

} // namespace outbox::ipc
