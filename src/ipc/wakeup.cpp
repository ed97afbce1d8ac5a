#include "ipc/wakeup.hpp"

#include "ipc/shmem.hpp"
#include "pg/injection_point.hpp"

extern "C" {
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "utils/wait_event.h"
}

namespace outbox::pg {

namespace {

constinit NamedWait news_wait{"OutboxWait"};

// One place for several databases: who wakes for nothing looks, and sleeps again.
constexpr uint32 places = 64;

struct Shared {
    ConditionVariable committed[places];
};

Shared* shared = nullptr;

// What this transaction has for others.
struct Pending {
    bool for_waiters;
    bool for_launcher;
    bool for_maintenance;
    uint32 tasks;
    TypeSet types;
};
Pending pending = {};

ConditionVariable* our_place()
{
    return &shared->committed[MyDatabaseId % places];
}

void initialize(void* memory)
{
    for (ConditionVariable& place : static_cast<Shared*>(memory)->committed)
        ConditionVariableInit(&place);
}

// Runs when the commit cannot fail any more, so this must not fail: it takes a spinlock and sets
// latches. Who commits a prepared transaction wakes for it (wake_now).
void at_end(XactEvent event, void*)
{
    const bool ends =
        event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE;
    if (!ends)
        return;
    if (event == XACT_EVENT_COMMIT)
        injection_point("commit");
    if (event == XACT_EVENT_COMMIT && shared != nullptr && pending.for_waiters) {
        ConditionVariableBroadcast(our_place());
        wake_relay(pending.types, pending.tasks);
    }
    if (event == XACT_EVENT_COMMIT && pending.for_launcher)
        notify_launcher(MyDatabaseId);
    if (event == XACT_EVENT_COMMIT && pending.for_maintenance)
        request_maintenance();
    unblock_workers();
    pending = {};
}

} // namespace

void wake_for_types_at_commit(const TypeSet& types)
{
    pending.for_waiters = true;
    pending.types.add(types);
}

void wake_at_commit()
{
    wake_for_types_at_commit(TypeSet::all());
}

void wake_relay_at_commit(Task task)
{
    pending.for_waiters = true;
    pending.tasks |= task;
}

void notify_launcher_at_commit()
{
    pending.for_launcher = true;
}

void request_maintenance_at_commit()
{
    pending.for_maintenance = true;
}

void wake_now()
{
    if (shared == nullptr)
        return;
    ConditionVariableBroadcast(our_place());
    wake_relay(TypeSet::all(), task_sinks | task_schedule | task_refused);
}

void prepare_to_wait()
{
    if (shared != nullptr)
        ConditionVariablePrepareToSleep(our_place());
}

void wait_for_wake(long milliseconds)
{
    if (shared != nullptr) {
        (void)ConditionVariableTimedSleep(our_place(), milliseconds, news_wait.number());
        return;
    }
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, milliseconds,
                    news_wait.number());
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
    want_shared("outbox wake", sizeof(Shared), reinterpret_cast<void**>(&shared), initialize);
}

} // namespace outbox::pg
