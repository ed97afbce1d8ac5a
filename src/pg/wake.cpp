#include "pg/wake.hpp"

#include "pg/library.hpp"

extern "C" {
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/wait_event.h"
}

namespace outbox::pg {

namespace {

// One place for several databases: who wakes for nothing looks, and sleeps again.
constexpr uint32 places = 64;

struct Shared {
    ConditionVariable committed[places];
};

Shared* shared = nullptr;
bool pending = false;
shmem_request_hook_type next_request_hook = nullptr;
shmem_startup_hook_type next_startup_hook = nullptr;

ConditionVariable* our_place()
{
    return &shared->committed[MyDatabaseId % places];
}

void request_memory()
{
    if (next_request_hook != nullptr)
        next_request_hook();
    RequestAddinShmemSpace(MAXALIGN(sizeof(Shared)));
}

void start_memory()
{
    if (next_startup_hook != nullptr)
        next_startup_hook();
    bool found;
    LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
    shared = static_cast<Shared*>(ShmemInitStruct("outbox", sizeof(Shared), &found));
    if (!found)
        for (ConditionVariable& place : shared->committed)
            ConditionVariableInit(&place);
    LWLockRelease(AddinShmemInitLock);
}

// Runs when the commit cannot fail any more, so this must not fail: it takes a spinlock and sets
// latches. A prepared transaction wakes nobody; those who wait look again after a while.
void at_end(XactEvent event, void*)
{
    if (pending && event == XACT_EVENT_COMMIT && shared != nullptr)
        ConditionVariableBroadcast(our_place());
    if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
        pending = false;
}

} // namespace

void wake_at_commit()
{
    pending = true;
}

void prepare_to_wait()
{
    if (shared != nullptr)
        ConditionVariablePrepareToSleep(our_place());
}

void wait_for_wake(long milliseconds)
{
    if (shared != nullptr) {
        (void)ConditionVariableTimedSleep(our_place(), milliseconds, PG_WAIT_EXTENSION);
        return;
    }
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, milliseconds,
                    PG_WAIT_EXTENSION);
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
}

void stop_waiting()
{
    if (shared != nullptr)
        ConditionVariableCancelSleep();
}

void set_up_wake()
{
    RegisterXactCallback(at_end, nullptr);
    if (!preloaded)
        return;
    next_request_hook = shmem_request_hook;
    shmem_request_hook = request_memory;
    next_startup_hook = shmem_startup_hook;
    shmem_startup_hook = start_memory;
}

} // namespace outbox::pg
