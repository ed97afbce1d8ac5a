#include "ipc/worker_registry.hpp"

#include "ipc/shmem.hpp"

#include <csignal>

extern "C" {
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/wait_event.h"
}

namespace outbox::ipc {

namespace {

constinit pg::CustomWaitEvent block_wait{"OutboxWorkerShutdown"};

struct WorkerSlot {
    pg_atomic_uint32 database;        // InvalidOid: free. Written by the launcher only
    pg_atomic_uint32 pid;             // of the relay; 0: none is attached
    pg_atomic_uint32 absence;         // a WorkerAbsence
    pg_atomic_uint32 reasons;         // WakeupReason bits that the relay has not taken
    pg_atomic_uint32 maintenance_pid; // 0: no maintenance worker is attached
    pg_atomic_uint32 maintenance_wanted;
    pg_atomic_uint32 lacks_maintenance_worker;
    pg_atomic_uint32 extension_present; // the relay has found the extension
    pg_atomic_uint64 latch; // address of the relay's latch, the same in every process; 0: none
    pg_atomic_uint64 wanted_types[EventTypeBloom::word_count];    // by some sink
    pg_atomic_uint64 committed_types[EventTypeBloom::word_count]; // wanted, not taken yet
};

constexpr int max_blocked_databases = 64;

struct Registry {
    pg_atomic_uint32 launcher_pid;
    pg_atomic_uint64 launcher_latch;
    pg_atomic_uint32 changed_database; // oid that the launcher has not taken; InvalidOid: none
    pg_atomic_uint32 several_databases_changed; // others changed beside changed_database
    pg_atomic_uint32 blocked_databases[max_blocked_databases]; // oids; InvalidOid: free entry
    WorkerSlot slots[max_worker_slots];
};

Registry* registry = nullptr;

// Frees all slots and blocks, once per server start.
void initialize_shmem(void* memory)
{
    auto* fresh = static_cast<Registry*>(memory);
    pg_atomic_init_u32(&fresh->launcher_pid, 0);
    pg_atomic_init_u64(&fresh->launcher_latch, 0);
    pg_atomic_init_u32(&fresh->changed_database, InvalidOid);
    pg_atomic_init_u32(&fresh->several_databases_changed, 0);
    for (pg_atomic_uint32& block : fresh->blocked_databases)
        pg_atomic_init_u32(&block, InvalidOid);
    for (WorkerSlot& slot : fresh->slots) {
        for (pg_atomic_uint32* word :
             {&slot.database, &slot.pid, &slot.absence, &slot.reasons, &slot.maintenance_pid,
              &slot.maintenance_wanted, &slot.lacks_maintenance_worker, &slot.extension_present})
            pg_atomic_init_u32(word, 0);
        pg_atomic_init_u64(&slot.latch, 0);
        for (std::size_t i = 0; i < EventTypeBloom::word_count; ++i) {
            pg_atomic_init_u64(&slot.wanted_types[i], 0);
            pg_atomic_init_u64(&slot.committed_types[i], 0);
        }
    }
}

// Sets the latch whose address is in `where`, unless it is 0. The address may be stale: after the
// owner's exit another process can have its PGPROC and thus its latch. That process wakes up once
// for nothing.
void set_latch(pg_atomic_uint64* where)
{
    if (const uint64 address = pg_atomic_read_u64(where); address != 0)
        SetLatch(reinterpret_cast<Latch*>(static_cast<uintptr_t>(address)));
}

// Returns the address of this process's latch.
uint64 my_latch()
{
    return static_cast<uint64>(reinterpret_cast<uintptr_t>(&MyProc->procLatch));
}

// Returns the number of a database's slot, of a free one for InvalidOid; -1 if there is none, or no
// shared memory.
int find_slot(Oid database)
{
    for (int i = 0; registry != nullptr && i < max_worker_slots; ++i)
        if (pg_atomic_read_u32(&registry->slots[i].database) == database)
            return i;
    return -1;
}

// Returns the slot of MyDatabaseId, or nullptr. The index is cached because every commit needs it.
WorkerSlot* own_slot()
{
    static int known = -1;
    if (registry == nullptr || !OidIsValid(MyDatabaseId))
        return nullptr;
    if (known < 0 || pg_atomic_read_u32(&registry->slots[known].database) != MyDatabaseId)
        known = find_slot(MyDatabaseId);
    return known < 0 ? nullptr : &registry->slots[known];
}

bool is_own_block[max_blocked_databases]; // entries of blocked_databases made by this session
bool blocks_any = false;

// before_shmem_exit callback: ends the session's blocks.
void unblock_workers_at_exit(int, Datum)
{
    unblock_workers();
}

// on_shmem_exit callback: the launcher has no pid and no latch any more.
void on_launcher_exit(int, Datum)
{
    pg_atomic_write_u64(&registry->launcher_latch, 0);
    pg_atomic_write_u32(&registry->launcher_pid, 0);
}

// on_shmem_exit callback: detaches the relay.
void on_worker_exit(int, Datum slot)
{
    detach_worker(DatumGetInt32(slot));
}

// on_shmem_exit callback: detaches the maintenance worker, if it is this process.
void on_maintenance_exit(int, Datum slot)
{
    uint32 mine = static_cast<uint32>(MyProcPid);
    (void)pg_atomic_compare_exchange_u32(&registry->slots[DatumGetInt32(slot)].maintenance_pid,
                                         &mine, 0);
}

// Wakes the relay of a database, which exits when it sees the block, and sends SIGTERM to the
// maintenance worker. Returns true if one of them is still attached.
bool terminate_workers(Oid database)
{
    const int slot = find_slot(database);
    if (slot < 0)
        return false;
    WorkerSlot& one = registry->slots[slot];
    set_latch(&one.latch);
    const auto maintenance = static_cast<pid_t>(pg_atomic_read_u32(&one.maintenance_pid));
    if (maintenance != 0)
        (void)kill(maintenance, SIGTERM);
    return maintenance != 0 || pg_atomic_read_u32(&one.pid) != 0;
}

// Adds the database to the blocked ones, unless this session has it there already. Does nothing if
// all entries are in use.
void add_block(Oid database)
{
    for (int i = 0; i < max_blocked_databases; ++i)
        if (is_own_block[i] && pg_atomic_read_u32(&registry->blocked_databases[i]) == database)
            return;
    for (int i = 0; i < max_blocked_databases; ++i) {
        uint32 expected = InvalidOid;
        if (pg_atomic_compare_exchange_u32(&registry->blocked_databases[i], &expected, database)) {
            static bool registered = false;
            if (!registered)
                before_shmem_exit(unblock_workers_at_exit, 0);
            registered = is_own_block[i] = blocks_any = true;
            return;
        }
    }
    // All entries are in use: the command runs without a block, and fails if a worker is connected.
}

} // namespace

int assign_slot(Oid database)
{
    if (const int known = find_slot(database); known >= 0)
        return known;
    const int slot = find_slot(InvalidOid);
    if (slot >= 0) {
        set_absence(slot, WorkerAbsence::none);
        set_lacks_maintenance_worker(slot, false);
        pg_atomic_exchange_u32(&registry->slots[slot].database, database);
    }
    return slot;
}

void free_slot(int slot)
{
    pg_atomic_exchange_u32(&registry->slots[slot].database, InvalidOid);
}

WorkerAbsence absence_of(int slot)
{
    return static_cast<WorkerAbsence>(pg_atomic_read_u32(&registry->slots[slot].absence));
}

void set_absence(int slot, WorkerAbsence absence)
{
    pg_atomic_write_u32(&registry->slots[slot].absence, static_cast<uint32>(absence));
}

bool has_worker(int slot)
{
    return pg_atomic_read_u32(&registry->slots[slot].pid) != 0;
}

bool has_extension(int slot)
{
    return pg_atomic_read_u32(&registry->slots[slot].extension_present) != 0;
}

void attach_launcher()
{
    pg_atomic_write_u32(&registry->launcher_pid, static_cast<uint32>(MyProcPid));
    pg_atomic_write_u64(&registry->launcher_latch, my_latch());
    on_shmem_exit(on_launcher_exit, 0);
}

bool is_launcher_running()
{
    return registry != nullptr && pg_atomic_read_u32(&registry->launcher_pid) != 0;
}

DatabaseChanges take_database_changes()
{
    const Oid database = pg_atomic_exchange_u32(&registry->changed_database, InvalidOid);
    const bool several = pg_atomic_exchange_u32(&registry->several_databases_changed, 0) != 0;
    return {database, several};
}

bool take_maintenance_request(int slot)
{
    return pg_atomic_exchange_u32(&registry->slots[slot].maintenance_wanted, 0) != 0;
}

bool has_maintenance_worker(int slot)
{
    return pg_atomic_read_u32(&registry->slots[slot].maintenance_pid) != 0;
}

bool lacks_maintenance_worker(int slot)
{
    return pg_atomic_read_u32(&registry->slots[slot].lacks_maintenance_worker) != 0;
}

void set_lacks_maintenance_worker(int slot, bool lacks)
{
    pg_atomic_write_u32(&registry->slots[slot].lacks_maintenance_worker, lacks);
}

bool attach_maintenance_worker(int slot)
{
    uint32 no_pid = 0;
    if (!pg_atomic_compare_exchange_u32(&registry->slots[slot].maintenance_pid, &no_pid,
                                        static_cast<uint32>(MyProcPid)))
        return false;
    on_shmem_exit(on_maintenance_exit, Int32GetDatum(slot));
    return true;
}

void request_maintenance() noexcept
{
    if (WorkerSlot* slot = own_slot()) {
        pg_atomic_exchange_u32(&slot->maintenance_wanted, 1);
        notify_launcher(MyDatabaseId);
    }
}

Oid database_of_slot(int slot)
{
    return pg_atomic_read_u32(&registry->slots[slot].database);
}

bool attach_worker(int slot)
{
    uint32 no_pid = 0;
    WorkerSlot& mine = registry->slots[slot];
    if (!pg_atomic_compare_exchange_u32(&mine.pid, &no_pid, static_cast<uint32>(MyProcPid)))
        return false;
    on_shmem_exit(on_worker_exit, Int32GetDatum(slot));
    pg_atomic_write_u32(&mine.absence, static_cast<uint32>(WorkerAbsence::none));
    pg_atomic_exchange_u64(&mine.latch, my_latch());
    return true;
}

void mark_extension_present(int slot)
{
    if (pg_atomic_exchange_u32(&registry->slots[slot].extension_present, 1) == 0)
        set_latch(&registry->launcher_latch); // it can start maintenance now
}

void detach_worker(int slot)
{
    WorkerSlot& mine = registry->slots[slot];
    if (pg_atomic_read_u32(&mine.pid) != static_cast<uint32>(MyProcPid))
        return;
    pg_atomic_write_u64(&mine.latch, 0);
    pg_atomic_write_u32(&mine.extension_present, 0);
    for (pg_atomic_uint64& word : mine.wanted_types)
        pg_atomic_write_u64(&word, 0);
    pg_atomic_exchange_u32(&mine.pid, 0);
    set_latch(&registry->launcher_latch);
}

void set_wanted_event_types(int slot, const EventTypeBloom& types)
{
    for (std::size_t i = 0; i < EventTypeBloom::word_count; ++i)
        pg_atomic_exchange_u64(&registry->slots[slot].wanted_types[i], types.words[i]);
}

WakeupRequests take_wakeup_requests(int slot)
{
    WorkerSlot& mine = registry->slots[slot];
    WakeupRequests requests = {};
    requests.reasons = pg_atomic_exchange_u32(&mine.reasons, 0);
    for (std::size_t i = 0; i < EventTypeBloom::word_count; ++i)
        if (pg_atomic_read_u64(&mine.committed_types[i]) != 0)
            requests.types.words[i] = pg_atomic_exchange_u64(&mine.committed_types[i], 0);
    return requests;
}

bool is_relay()
{
    WorkerSlot* slot = own_slot();
    return slot != nullptr && pg_atomic_read_u32(&slot->pid) == static_cast<uint32>(MyProcPid);
}

bool is_wakeup_pending(uint32 reasons)
{
    WorkerSlot* slot = own_slot();
    return slot == nullptr || (pg_atomic_read_u32(&slot->reasons) & reasons) != 0;
}

bool are_workers_blocked(Oid database)
{
    for (const pg_atomic_uint32& block : registry->blocked_databases)
        if (pg_atomic_read_u32(const_cast<pg_atomic_uint32*>(&block)) == database)
            return true;
    return false;
}

void wake_relay(const EventTypeBloom& types, uint32 reasons) noexcept
{
    WorkerSlot* slot = own_slot();
    // The relay does not wake itself: it knows what its transactions changed.
    if (slot == nullptr || is_relay())
        return;
    bool wanted = reasons != 0;
    if (reasons != 0)
        pg_atomic_fetch_or_u32(&slot->reasons, reasons);
    for (std::size_t i = 0; i < EventTypeBloom::word_count; ++i)
        if (const uint64 bits = types.words[i] & pg_atomic_read_u64(&slot->wanted_types[i]);
            bits != 0) {
            pg_atomic_fetch_or_u64(&slot->committed_types[i], bits);
            wanted = true;
        }
    if (wanted)
        set_latch(&slot->latch);
}

int relay_pid(Oid database)
{
    const int slot = find_slot(database);
    return slot < 0 ? 0 : static_cast<int>(pg_atomic_read_u32(&registry->slots[slot].pid));
}

WorkerAbsence absence_of_database(Oid database)
{
    const int slot = find_slot(database);
    return slot < 0 ? WorkerAbsence::none : absence_of(slot);
}

bool database_lacks_maintenance_worker(Oid database)
{
    const int slot = find_slot(database);
    return slot >= 0 && lacks_maintenance_worker(slot);
}

void block_workers(Oid database)
{
    constexpr int max_polls = 500; // of ten milliseconds each
    if (registry == nullptr)
        return;
    add_block(database);
    for (int i = 0; i < max_polls && terminate_workers(database); ++i) {
        (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10,
                        block_wait.event_info());
        ResetLatch(MyLatch);
        CHECK_FOR_INTERRUPTS();
    }
}

void unblock_workers() noexcept
{
    if (!blocks_any)
        return;
    for (int i = 0; i < max_blocked_databases; ++i)
        if (is_own_block[i]) {
            is_own_block[i] = false;
            const Oid database =
                pg_atomic_exchange_u32(&registry->blocked_databases[i], InvalidOid);
            notify_launcher(database);
        }
    blocks_any = false;
}

void notify_launcher(Oid database) noexcept
{
    if (registry == nullptr)
        return;
    uint32 expected = InvalidOid;
    if (!pg_atomic_compare_exchange_u32(&registry->changed_database, &expected, database) &&
        expected != database)
        pg_atomic_exchange_u32(&registry->several_databases_changed, 1);
    set_latch(&registry->launcher_latch);
}

void set_up_worker_registry()
{
    request_shmem("outbox worker registry", sizeof(Registry), reinterpret_cast<void**>(&registry),
                  initialize_shmem);
}

} // namespace outbox::ipc
