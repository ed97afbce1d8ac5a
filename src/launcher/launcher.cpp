// The states of a database:
//
//   no relay ──start_relay──► running ──ends──► by its ipc::WorkerAbsence
//      ▲                                         no_extension: wait for CREATE EXTENSION
//      │                                         stopped_for_command: start when unblocked
//      │                                         terminated: start if it is still served
//      └──────────────────────────────────────── none (failed): start after a pause that doubles
#include "launcher/launcher.hpp"

#include "extension/guc.hpp"
#include "extension/preload.hpp"
#include "extension/worker_transaction.hpp"
#include "ipc/worker_registry.hpp"
#include "pg/exceptions.hpp"
#include "relay/relay.hpp"

extern "C" {
#include "access/heapam.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
}

#include <algorithm>

namespace outbox {

namespace {

constexpr int64 second = 1000000; // in microseconds, the unit of TimestampTz

// After this time a failure of the relay has a new cause, so the pause starts at first_pause again.
constexpr int64 min_stable_time = 60 * second;
constexpr int64 first_pause = second / 10;
constexpr int64 max_pause = 60 * second;
constexpr int64 pause_without_slot = 10 * second;

// Concurrent maintenance workers of all databases: each takes a slot of max_worker_processes.
constexpr int max_maintenance_workers = 4;
constexpr int64 maintenance_retry_pause = 10 * second;

// Upper limit of a sleep. Changes set the launcher's latch, except for commands that the hook does
// not observe, such as ALTER DATABASE ... ALLOW_CONNECTIONS.
constexpr int64 idle_pause = 60 * second;

struct Database {
    Oid oid;
    char name[NAMEDATALEN];
    bool exists;        // in pg_database when it was read last, and served by the settings
    bool relay_started; // and its end not yet noticed
    bool lacks_extension;
    bool has_changed; // notify_launcher() named it after its relay was started
    int slot;         // worker slot; -1: none
    BackgroundWorkerHandle* relay;
    TimestampTz started_at;
    TimestampTz not_before;
    int failures;
    BackgroundWorkerHandle* maintenance_worker; // its end not yet noticed; nullptr: none
    TimestampTz next_maintenance;
};

// All databases that are or were served, in memory of the process; searched linearly.
struct Databases {
    Database* all = nullptr;
    int count = 0;
    int capacity = 0;
};

Databases databases;

Database* find_database(Oid oid)
{
    for (int i = 0; i < databases.count; ++i)
        if (databases.all[i].oid == oid)
            return &databases.all[i];
    return nullptr;
}

// Returns the entry of a database. A new one may move the array, in TopMemoryContext: pointers to
// other entries become invalid.
Database* find_or_add_database(Oid oid)
{
    if (Database* known = find_database(oid))
        return known;
    if (databases.count == databases.capacity) {
        databases.capacity = Max(databases.capacity * 2, 16);
        const Size size = sizeof(Database) * static_cast<Size>(databases.capacity);
        databases.all = static_cast<Database*>(databases.all == nullptr
                                                   ? MemoryContextAlloc(TopMemoryContext, size)
                                                   : repalloc(databases.all, size));
    }
    Database* fresh = &databases.all[databases.count++];
    *fresh = {};
    fresh->oid = oid;
    fresh->slot = -1;
    return fresh;
}

// Returns whether a row of pg_database admits connections and the settings include it. Templates
// are not served: CREATE DATABASE fails while a session is connected to its template.
bool can_be_served(Form_pg_database row)
{
    constexpr int invalid_database = -2; // DATCONNLIMIT_INVALID_DB: an interrupted DROP DATABASE
    return row->datallowconn && !row->datistemplate && row->datconnlimit != invalid_database &&
           is_database_served(NameStr(row->datname));
}

// Reads pg_database in a transaction of its own: adds entries, and sets `exists` and `name` of all.
void list_databases()
{
    for (int i = 0; i < databases.count; ++i)
        databases.all[i].exists = false;
    SetCurrentStatementStartTimestamp();
    StartTransactionCommand();
    const Relation catalog = table_open(DatabaseRelationId, AccessShareLock);
    const TableScanDesc scan = table_beginscan_catalog(catalog, 0, nullptr);
    while (const HeapTuple tuple = heap_getnext(scan, ForwardScanDirection)) {
        auto* row = reinterpret_cast<Form_pg_database>(GETSTRUCT(tuple));
        if (!can_be_served(row))
            continue;
        Database* database = find_or_add_database(row->oid);
        database->exists = true;
        strlcpy(database->name, NameStr(row->datname), NAMEDATALEN);
    }
    table_endscan(scan);
    table_close(catalog, AccessShareLock);
    CommitTransactionCommand();
}

// Returns whether the worker runs or is yet to be started; false for nullptr.
bool is_alive(BackgroundWorkerHandle* handle)
{
    if (handle == nullptr)
        return false;
    pid_t pid;
    const BgwHandleStatus status = GetBackgroundWorkerPid(handle, &pid);
    return status == BGWH_STARTED || status == BGWH_NOT_YET_STARTED;
}

// Returns whether a relay is attached to the slot, maybe of an earlier launcher, or was registered.
bool is_running(const Database& database)
{
    return (database.slot >= 0 && ipc::has_worker(database.slot)) || is_alive(database.relay);
}

// Decides when to start the relay again, by the absence that it left in its worker slot; sets
// not_before and failures. Without the extension it frees the slot.
void on_relay_ended(Database& database, TimestampTz now)
{
    const ipc::WorkerAbsence absence = ipc::absence_of(database.slot);
    database.relay_started = false;
    if (database.relay != nullptr)
        pfree(database.relay);
    database.relay = nullptr;
    database.not_before = now;
    if (absence == ipc::WorkerAbsence::no_extension) {
        // CREATE EXTENSION may have committed while the relay was ending.
        database.lacks_extension = !database.has_changed;
        ipc::free_slot(database.slot);
        database.slot = -1;
    } else if (absence == ipc::WorkerAbsence::terminated) {
        database.not_before = now + first_pause;
    } else if (absence != ipc::WorkerAbsence::stopped_for_command) {
        if (now - database.started_at > min_stable_time)
            database.failures = 0;
        constexpr int max_doublings = 10;
        database.not_before =
            now + std::min(first_pause << std::min(database.failures, max_doublings), max_pause);
        ++database.failures;
    }
}

// Describes a worker for RegisterDynamicBackgroundWorker(): its argument is the worker slot, and
// its end wakes this process.
BackgroundWorker make_worker(const Database& database, const char* function, const char* type)
{
    BackgroundWorker worker = {};
    worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
    worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
    worker.bgw_restart_time = BGW_NEVER_RESTART;
    worker.bgw_main_arg = Int32GetDatum(database.slot);
    worker.bgw_notify_pid = MyProcPid;
    strlcpy(worker.bgw_library_name, "outbox", sizeof(worker.bgw_library_name));
    strlcpy(worker.bgw_function_name, function, sizeof(worker.bgw_function_name));
    strlcpy(worker.bgw_type, type, sizeof(worker.bgw_type));
    snprintf(worker.bgw_name, sizeof(worker.bgw_name), "%s for database %s", type, database.name);
    return worker;
}

// Registers a worker, with the handle in TopMemoryContext. Returns false if max_worker_processes is
// exhausted.
bool register_worker(BackgroundWorker& worker, BackgroundWorkerHandle** handle)
{
    const MemoryContext before = MemoryContextSwitchTo(TopMemoryContext);
    const bool registered = RegisterDynamicBackgroundWorker(&worker, handle);
    MemoryContextSwitchTo(before);
    return registered;
}

// Assigns a worker slot and registers the relay. If there is no slot or process for it, warns and
// sets not_before.
void start_relay(Database& database, TimestampTz now)
{
    database.slot = ipc::assign_slot(database.oid);
    if (database.slot < 0) {
        ereport(WARNING, (errmsg("outbox: no more than %d databases can have a relay",
                                 ipc::max_worker_slots)));
        database.not_before = now + idle_pause;
        return;
    }
    BackgroundWorker worker = make_worker(database, "outbox_relay_main", "outbox relay");
    if (!register_worker(worker, &database.relay)) {
        if (ipc::absence_of(database.slot) != ipc::WorkerAbsence::no_worker_slot)
            ereport(WARNING, (errmsg("outbox: no relay for database \"%s\": no worker slot is free",
                                     database.name),
                              errhint("Raise max_worker_processes.")));
        ipc::set_absence(database.slot, ipc::WorkerAbsence::no_worker_slot);
        database.not_before = now + pause_without_slot;
        return;
    }
    ipc::set_absence(database.slot, ipc::WorkerAbsence::none);
    database.relay_started = true;
    database.has_changed = false;
    database.started_at = now;
}

// Counts the running maintenance workers that this launcher has started, of all databases.
int count_maintenance_workers()
{
    int count = 0;
    for (int i = 0; i < databases.count; ++i)
        count += is_alive(databases.all[i].maintenance_worker);
    return count;
}

// Starts a maintenance worker if one is due. Returns when to call again; DT_NOEND: at a wake-up.
TimestampTz start_maintenance_if_due(Database& database, TimestampTz now)
{
    if (database.maintenance_worker != nullptr) {
        if (is_alive(database.maintenance_worker))
            return DT_NOEND; // bgw_notify_pid: its end wakes the launcher
        pfree(database.maintenance_worker);
        database.maintenance_worker = nullptr;
    }
    if (!ipc::has_extension(database.slot) || ipc::are_workers_blocked(database.oid))
        return DT_NOEND;
    // Started by an earlier launcher process, which crashed.
    if (ipc::has_maintenance_worker(database.slot))
        return now + maintenance_retry_pause;
    if (ipc::take_maintenance_request(database.slot))
        database.next_maintenance = now;
    // The setting may have become shorter, or the clock may have been set back.
    database.next_maintenance =
        Min(database.next_maintenance, now + settings::maintenance_interval * second);
    if (now < database.next_maintenance)
        return database.next_maintenance;
    if (count_maintenance_workers() >= max_maintenance_workers)
        return DT_NOEND;
    BackgroundWorker worker =
        make_worker(database, "outbox_maintenance_main", "outbox maintenance");
    const bool registered = register_worker(worker, &database.maintenance_worker);
    if (!registered && !ipc::lacks_maintenance_worker(database.slot))
        ereport(WARNING,
                (errmsg("outbox: no maintenance for database \"%s\": no worker slot is free",
                        database.name),
                 errhint("Raise max_worker_processes.")));
    ipc::set_lacks_maintenance_worker(database.slot, !registered);
    if (!registered) {
        database.maintenance_worker = nullptr;
        return database.next_maintenance = now + maintenance_retry_pause;
    }
    return database.next_maintenance = now + settings::maintenance_interval * second;
}

// Makes at most one transition for a database. Returns when to call again; DT_NOEND: at a wake-up.
TimestampTz advance_database(Database& database, TimestampTz now)
{
    if (is_running(database)) {
        database.relay_started = true;
        return start_maintenance_if_due(database, now);
    }
    if (database.relay_started)
        on_relay_ended(database, now);
    // The session that blocks workers notifies the launcher when it unblocks them.
    if (!database.exists || database.lacks_extension || ipc::are_workers_blocked(database.oid))
        return DT_NOEND;
    if (now < database.not_before)
        return database.not_before;
    start_relay(database, now);
    return database.relay_started ? DT_NOEND : database.not_before;
}

// Removes the entries of databases that are no longer served and have no relay; frees their slots.
void remove_dropped_databases()
{
    for (int i = databases.count; i-- > 0;) {
        Database& database = databases.all[i];
        if (database.exists || is_running(database))
            continue;
        if (database.slot >= 0)
            ipc::free_slot(database.slot);
        database = databases.all[--databases.count];
    }
}

// Lets the relays of databases that notify_launcher() named be started, although they had no
// extension before.
void apply_database_changes()
{
    const ipc::DatabaseChanges changes = ipc::take_database_changes();
    for (int i = 0; i < databases.count; ++i)
        if (changes.several || databases.all[i].oid == changes.database) {
            databases.all[i].lacks_extension = false;
            databases.all[i].has_changed = true;
        }
}

constinit pg::CustomWaitEvent launcher_wait{"OutboxLauncher"};

// Sleeps until the time or a wake-up, for idle_pause at most; then applies a reload of the
// configuration.
void wait_until(TimestampTz time)
{
    const TimestampTz now = GetCurrentTimestamp();
    const int64 left = Min(time == DT_NOEND ? idle_pause : Max(time - now, 0), idle_pause);
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
                    static_cast<long>(left / 1000 + 1), launcher_wait.event_info());
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
    if (ConfigReloadPending) {
        ConfigReloadPending = false;
        ProcessConfigFile(PGC_SIGHUP);
    }
}

void run_launcher()
{
    while (!ShutdownRequestPending) {
        apply_database_changes();
        list_databases();
        remove_dropped_databases();
        TimestampTz next = DT_NOEND;
        for (int i = 0; i < databases.count; ++i)
            next = Min(next, advance_database(databases.all[i], GetCurrentTimestamp()));
        wait_until(next);
    }
}

} // namespace

void register_launcher()
{
    BackgroundWorker worker = {};
    worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
    worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
    worker.bgw_restart_time = 1;
    strlcpy(worker.bgw_library_name, "outbox", sizeof(worker.bgw_library_name));
    strlcpy(worker.bgw_function_name, "outbox_launcher_main", sizeof(worker.bgw_function_name));
    strlcpy(worker.bgw_name, "outbox launcher", sizeof(worker.bgw_name));
    strlcpy(worker.bgw_type, "outbox launcher", sizeof(worker.bgw_type));
    RegisterBackgroundWorker(&worker);
}

} // namespace outbox

#pragma GCC visibility push(default)
extern "C" {
PGDLLEXPORT void outbox_launcher_main(Datum unused);
}
#pragma GCC visibility pop

void outbox_launcher_main(Datum)
{
    pqsignal(SIGHUP, SignalHandlerForConfigReload);
    pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
    BackgroundWorkerUnblockSignals();
    BackgroundWorkerInitializeConnection(nullptr, nullptr, 0);
    SetConfigOption("application_name", "outbox launcher", PGC_USERSET, PGC_S_OVERRIDE);
    outbox::disable_timeouts();
    outbox::ipc::attach_launcher();
    outbox::pg::sql_entry([] { outbox::run_launcher(); });
    // The postmaster restarts a worker after exit code 1, but not after 0.
    proc_exit(1);
}
