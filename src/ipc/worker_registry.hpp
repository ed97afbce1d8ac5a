// Who relays which database: a post per served database, in shared memory, seen by the launcher,
// the worker, those who have something for the worker, and those who want it away for a while.
//
//   free ──launcher: assign──► assigned ──worker: take──► taken ──worker: leave──► assigned, or
//   free
//
// Everything here is atomics: a commit callback reads it, and nothing there may fail.
#pragma once

#include "core/event_type_bloom.hpp"
#include "pg/postgres.hpp"

namespace outbox::pg {

// What a worker finds to do, beside events.
enum Task : uint32 {
    task_sinks = 1,    // sinks have changed
    task_schedule = 2, // something was scheduled
    task_test = 4,     // somebody wants a sink tested
    task_refused = 8,  // somebody had the log refuse something that was scheduled
};

// Why a post is without a worker.
enum class WorkerAbsence : uint32 {
    none, // or an error ended the worker
    no_extension,
    no_worker_slot,
    stepped_aside, // for a command
    on_sigterm,
};

inline constexpr int max_worker_slots = 128;

// ---- the launcher

// The post of a database, assigned if need be; -1 if there are no more posts.
int assign_slot(Oid database);
void free_slot(int post);
WorkerAbsence absence_of(int post);
void set_absence(int post, WorkerAbsence vacancy);
bool is_taken(int post);
bool is_served(int post); // and its database has the extension

void become_launcher();
bool is_launcher_there();

// Databases that somebody has news of since the last call: one, several (then InvalidOid and
// `several`), or none.
struct DatabaseChanges {
    Oid database;
    bool several;
};
DatabaseChanges take_database_changes();

// Has somebody asked for maintenance since the last call?
bool take_maintenance_call(int post);
bool is_maintained(int post);

// Is maintenance due, and no worker slot free for it?
bool lacks_maintenance(int post);
void set_lacks_maintenance(int post, bool lacks);

// ---- the worker

Oid database_of_slot(int post);
bool attach_worker(int post); // false if another has it
void begin_service(int post); // the database has the extension
void detach_worker(int post);

// What is wanted: only transactions that bring some of it wake the worker.
void set_wanted_event_types(int post, const TypeSet& types);

// What has come since the last call.
struct WakeupRequests {
    TypeSet types;
    uint32 tasks;
};
WakeupRequests take_wakeup_requests(int post);

// Is this process the relay of its database?
bool is_relay();

// Has this worker been called for one of these, and not heard it yet?
bool is_relay_called(uint32 tasks);

// Does somebody want the worker of this database away?
bool are_workers_blocked(Oid database);

// This process does maintenance for the post's database, until it ends. False if another does.
bool take_maintenance(int post);

// ---- everybody else

// Wakes this database's worker. Cannot fail.
void wake_relay(const TypeSet& types, uint32 tasks) noexcept;

// The process that relays this database; 0 if there is none.
int relay_pid(Oid database);
WorkerAbsence vacancy_of_database(Oid database);
bool database_lacks_maintenance(Oid database);

// From now until the end of the transaction no worker connects to this database, and those that are
// connected leave. Waits until they have, for a few seconds.
void block_workers(Oid database);
void unblock_workers() noexcept;

// This database wants maintenance, now. Cannot fail.
void request_maintenance() noexcept;

// The launcher should look at this database.
void notify_launcher(Oid database) noexcept;

void set_up_posts();

} // namespace outbox::pg
