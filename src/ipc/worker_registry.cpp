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

namespace outbox::pg {

namespace {

constinit NamedWait hold_wait{"OutboxStepAside"};

struct Post {
    pg_atomic_uint32 database; // InvalidOid: free. Only the launcher changes this
    pg_atomic_uint32 pid;      // of the worker; 0: nobody
    pg_atomic_uint32 vacancy;
    pg_atomic_uint32 tasks;
    pg_atomic_uint32 maintenance_pid;
    pg_atomic_uint32 maintenance_wanted;
    pg_atomic_uint32 lacks_maintenance;
    pg_atomic_uint32 serves; // there is something to work for
    pg_atomic_uint64 latch;  // the worker's: it is in shared memory, at the same address everywhere
    pg_atomic_uint64 interest[TypeSet::word_count];
    pg_atomic_uint64 types[TypeSet::word_count]; // that have come
};

constexpr int max_holds = 64;

struct Shared {
    pg_atomic_uint32 launcher_pid;
    pg_atomic_uint64 launcher_latch;
    pg_atomic_uint32 news; // a database
    pg_atomic_uint32 more_news;
    pg_atomic_uint32 holds[max_holds]; // databases
    Post posts[max_worker_slots];
};

Shared* shared = nullptr;

void initialize(void* memory)
{
    auto* fresh = static_cast<Shared*>(memory);
    pg_atomic_init_u32(&fresh->launcher_pid, 0);
    pg_atomic_init_u64(&fresh->launcher_latch, 0);
    pg_atomic_init_u32(&fresh->news, InvalidOid);
    pg_atomic_init_u32(&fresh->more_news, 0);
    for (pg_atomic_uint32& hold : fresh->holds)
        pg_atomic_init_u32(&hold, InvalidOid);
    for (Post& post : fresh->posts) {
        for (pg_atomic_uint32* word :
             {&post.database, &post.pid, &post.vacancy, &post.tasks, &post.maintenance_pid,
              &post.maintenance_wanted, &post.lacks_maintenance, &post.serves})
            pg_atomic_init_u32(word, 0);
        pg_atomic_init_u64(&post.latch, 0);
        for (std::size_t i = 0; i < TypeSet::word_count; ++i) {
            pg_atomic_init_u64(&post.interest[i], 0);
            pg_atomic_init_u64(&post.types[i], 0);
        }
    }
}

// A latch of a process that is gone belongs to its successor, who looks up and sleeps on.
void set_latch(pg_atomic_uint64* where)
{
    if (const uint64 address = pg_atomic_read_u64(where); address != 0)
        SetLatch(reinterpret_cast<Latch*>(static_cast<uintptr_t>(address)));
}

uint64 my_latch()
{
    return static_cast<uint64>(reinterpret_cast<uintptr_t>(&MyProc->procLatch));
}

int find_post(Oid database)
{
    for (int i = 0; shared != nullptr && i < max_worker_slots; ++i)
        if (pg_atomic_read_u32(&shared->posts[i].database) == database)
            return i;
    return -1;
}

// This backend's own database, remembered: every commit asks for it.
Post* own_post()
{
    static int known = -1;
    if (shared == nullptr || !OidIsValid(MyDatabaseId))
        return nullptr;
    if (known < 0 || pg_atomic_read_u32(&shared->posts[known].database) != MyDatabaseId)
        known = find_post(MyDatabaseId);
    return known < 0 ? nullptr : &shared->posts[known];
}

bool hold_is_mine[max_holds];
bool holds_any = false;

void release_holds_at_exit(int, Datum)
{
    unblock_workers();
}

void launcher_leaves(int, Datum)
{
    pg_atomic_write_u64(&shared->launcher_latch, 0);
    pg_atomic_write_u32(&shared->launcher_pid, 0);
}

void worker_leaves(int, Datum post)
{
    detach_worker(DatumGetInt32(post));
}

void maintenance_ends(int, Datum post)
{
    uint32 mine = static_cast<uint32>(MyProcPid);
    (void)pg_atomic_compare_exchange_u32(&shared->posts[DatumGetInt32(post)].maintenance_pid, &mine,
                                         0);
}

// Asks those who work for a database to leave. Is anybody there?
bool send_away(Oid database)
{
    const int post = find_post(database);
    if (post < 0)
        return false;
    Post& one = shared->posts[post];
    set_latch(&one.latch);
    const auto maintenance = static_cast<pid_t>(pg_atomic_read_u32(&one.maintenance_pid));
    if (maintenance != 0)
        (void)kill(maintenance, SIGTERM);
    return maintenance != 0 || pg_atomic_read_u32(&one.pid) != 0;
}

void take_hold(Oid database)
{
    for (int i = 0; i < max_holds; ++i)
        if (hold_is_mine[i] && pg_atomic_read_u32(&shared->holds[i]) == database)
            return;
    for (int i = 0; i < max_holds; ++i) {
        uint32 expected = InvalidOid;
        if (pg_atomic_compare_exchange_u32(&shared->holds[i], &expected, database)) {
            static bool registered = false;
            if (!registered)
                before_shmem_exit(release_holds_at_exit, 0);
            registered = hold_is_mine[i] = holds_any = true;
            return;
        }
    }
    // Without a place the command goes on, and finds the relay in its way as it would any session.
}

} // namespace

int assign_slot(Oid database)
{
    if (const int known = find_post(database); known >= 0)
        return known;
    const int post = find_post(InvalidOid);
    if (post >= 0) {
        set_absence(post, WorkerAbsence::none);
        set_lacks_maintenance(post, false);
        pg_atomic_exchange_u32(&shared->posts[post].database, database);
    }
    return post;
}

void free_slot(int post)
{
    pg_atomic_exchange_u32(&shared->posts[post].database, InvalidOid);
}

WorkerAbsence absence_of(int post)
{
    return static_cast<WorkerAbsence>(pg_atomic_read_u32(&shared->posts[post].vacancy));
}

void set_absence(int post, WorkerAbsence vacancy)
{
    pg_atomic_write_u32(&shared->posts[post].vacancy, static_cast<uint32>(vacancy));
}

bool is_taken(int post)
{
    return pg_atomic_read_u32(&shared->posts[post].pid) != 0;
}

bool is_served(int post)
{
    return pg_atomic_read_u32(&shared->posts[post].serves) != 0;
}

void become_launcher()
{
    pg_atomic_write_u32(&shared->launcher_pid, static_cast<uint32>(MyProcPid));
    pg_atomic_write_u64(&shared->launcher_latch, my_latch());
    on_shmem_exit(launcher_leaves, 0);
}

bool is_launcher_there()
{
    return shared != nullptr && pg_atomic_read_u32(&shared->launcher_pid) != 0;
}

DatabaseChanges take_database_changes()
{
    const Oid database = pg_atomic_exchange_u32(&shared->news, InvalidOid);
    const bool several = pg_atomic_exchange_u32(&shared->more_news, 0) != 0;
    return {database, several};
}

bool take_maintenance_call(int post)
{
    return pg_atomic_exchange_u32(&shared->posts[post].maintenance_wanted, 0) != 0;
}

bool is_maintained(int post)
{
    return pg_atomic_read_u32(&shared->posts[post].maintenance_pid) != 0;
}

bool lacks_maintenance(int post)
{
    return pg_atomic_read_u32(&shared->posts[post].lacks_maintenance) != 0;
}

void set_lacks_maintenance(int post, bool lacks)
{
    pg_atomic_write_u32(&shared->posts[post].lacks_maintenance, lacks);
}

bool take_maintenance(int post)
{
    uint32 nobody = 0;
    if (!pg_atomic_compare_exchange_u32(&shared->posts[post].maintenance_pid, &nobody,
                                        static_cast<uint32>(MyProcPid)))
        return false;
    on_shmem_exit(maintenance_ends, Int32GetDatum(post));
    return true;
}

void request_maintenance() noexcept
{
    if (Post* post = own_post()) {
        pg_atomic_exchange_u32(&post->maintenance_wanted, 1);
        notify_launcher(MyDatabaseId);
    }
}

Oid database_of_slot(int post)
{
    return pg_atomic_read_u32(&shared->posts[post].database);
}

bool attach_worker(int post)
{
    uint32 nobody = 0;
    Post& mine = shared->posts[post];
    if (!pg_atomic_compare_exchange_u32(&mine.pid, &nobody, static_cast<uint32>(MyProcPid)))
        return false;
    on_shmem_exit(worker_leaves, Int32GetDatum(post));
    pg_atomic_write_u32(&mine.vacancy, static_cast<uint32>(WorkerAbsence::none));
    pg_atomic_exchange_u64(&mine.latch, my_latch());
    return true;
}

void begin_service(int post)
{
    if (pg_atomic_exchange_u32(&shared->posts[post].serves, 1) == 0)
        set_latch(&shared->launcher_latch); // maintenance may begin
}

void detach_worker(int post)
{
    Post& mine = shared->posts[post];
    if (pg_atomic_read_u32(&mine.pid) != static_cast<uint32>(MyProcPid))
        return;
    pg_atomic_write_u64(&mine.latch, 0);
    pg_atomic_write_u32(&mine.serves, 0);
    for (pg_atomic_uint64& word : mine.interest)
        pg_atomic_write_u64(&word, 0);
    pg_atomic_exchange_u32(&mine.pid, 0);
    set_latch(&shared->launcher_latch);
}

void set_wanted_event_types(int post, const TypeSet& types)
{
    for (std::size_t i = 0; i < TypeSet::word_count; ++i)
        pg_atomic_exchange_u64(&shared->posts[post].interest[i], types.words[i]);
}

WakeupRequests take_wakeup_requests(int post)
{
    Post& mine = shared->posts[post];
    WakeupRequests calls = {};
    calls.tasks = pg_atomic_exchange_u32(&mine.tasks, 0);
    for (std::size_t i = 0; i < TypeSet::word_count; ++i)
        if (pg_atomic_read_u64(&mine.types[i]) != 0)
            calls.types.words[i] = pg_atomic_exchange_u64(&mine.types[i], 0);
    return calls;
}

bool is_relay()
{
    Post* post = own_post();
    return post != nullptr && pg_atomic_read_u32(&post->pid) == static_cast<uint32>(MyProcPid);
}

bool is_relay_called(uint32 tasks)
{
    Post* post = own_post();
    return post == nullptr || (pg_atomic_read_u32(&post->tasks) & tasks) != 0;
}

bool are_workers_blocked(Oid database)
{
    for (const pg_atomic_uint32& hold : shared->holds)
        if (pg_atomic_read_u32(const_cast<pg_atomic_uint32*>(&hold)) == database)
            return true;
    return false;
}

void wake_relay(const TypeSet& types, uint32 tasks) noexcept
{
    Post* post = own_post();
    // A relay knows of its own doings.
    if (post == nullptr || is_relay())
        return;
    bool wanted = tasks != 0;
    if (tasks != 0)
        pg_atomic_fetch_or_u32(&post->tasks, tasks);
    for (std::size_t i = 0; i < TypeSet::word_count; ++i)
        if (const uint64 bits = types.words[i] & pg_atomic_read_u64(&post->interest[i]);
            bits != 0) {
            pg_atomic_fetch_or_u64(&post->types[i], bits);
            wanted = true;
        }
    if (wanted)
        set_latch(&post->latch);
}

int relay_pid(Oid database)
{
    const int post = find_post(database);
    return post < 0 ? 0 : static_cast<int>(pg_atomic_read_u32(&shared->posts[post].pid));
}

WorkerAbsence vacancy_of_database(Oid database)
{
    const int post = find_post(database);
    return post < 0 ? WorkerAbsence::none : absence_of(post);
}

bool database_lacks_maintenance(Oid database)
{
    const int post = find_post(database);
    return post >= 0 && lacks_maintenance(post);
}

void block_workers(Oid database)
{
    constexpr int patience = 500; // of ten milliseconds each
    if (shared == nullptr)
        return;
    take_hold(database);
    for (int i = 0; i < patience && send_away(database); ++i) {
        (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10,
                        hold_wait.number());
        ResetLatch(MyLatch);
        CHECK_FOR_INTERRUPTS();
    }
}

void unblock_workers() noexcept
{
    if (!holds_any)
        return;
    for (int i = 0; i < max_holds; ++i)
        if (hold_is_mine[i]) {
            hold_is_mine[i] = false;
            const Oid database = pg_atomic_exchange_u32(&shared->holds[i], InvalidOid);
            notify_launcher(database);
        }
    holds_any = false;
}

void notify_launcher(Oid database) noexcept
{
    if (shared == nullptr)
        return;
    uint32 expected = InvalidOid;
    if (!pg_atomic_compare_exchange_u32(&shared->news, &expected, database) && expected != database)
        pg_atomic_exchange_u32(&shared->more_news, 1);
    set_latch(&shared->launcher_latch);
}

void set_up_posts()
{
    want_shared("outbox posts", sizeof(Shared), reinterpret_cast<void**>(&shared), initialize);
}

} // namespace outbox::pg
