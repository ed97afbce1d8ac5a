#include "ipc/wakeup.hpp"

#include "ipc/shmem.hpp"
#include "pg/injection_point.hpp"

extern "C" {
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "utils/wait_event.h"
}

namespace outbox::ipc {

namespace {

constinit pg::CustomWaitEvent wakeup_wait{"OutboxWait"};

// Databases share these by oid modulo count. A waiter that is woken by a commit in another database
// finds its condition unchanged and sleeps again.
constexpr uint32 condition_variable_count = 64;

struct SharedState {
    ConditionVariable commits[condition_variable_count];
};

SharedState* shared = nullptr;

// Wakeups that this transaction sends if it commits.
struct PendingWakeups {
    bool for_waiters;
    bool for_launcher;
    bool for_maintenance;
    uint32 reasons;
    EventTypeBloom types;
};
PendingWakeups pending = {};

// Returns the condition variable of this database. The caller has checked `shared`.
ConditionVariable* own_condition_variable()
{
    return &shared->commits[MyDatabaseId % condition_variable_count];
}

// Initializes the condition variables, once per server start.
void initialize_shmem(void* memory)
{
    for (ConditionVariable& variable : static_cast<SharedState*>(memory)->commits)
        ConditionVariableInit(&variable);
}

// Xact callback: a commit sends the pending wakeups; every end of a transaction discards them and
// ends the session's blocks of workers. At XACT_EVENT_COMMIT the transaction is committed already,
// so nothing here may raise an error: a broadcast takes a spinlock, the rest writes atomics and
// sets latches. The callback runs before locks are released. PREPARE discards the pending wakeups:
// COMMIT PREPARED sends its own (wake_all_now).
void on_xact_event(XactEvent event, void*)
{
    const bool ends =
        event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE;
    if (!ends)
        return;
    if (event == XACT_EVENT_COMMIT)
        pg::injection_point("commit");
    if (event == XACT_EVENT_COMMIT && shared != nullptr && pending.for_waiters) {
        ConditionVariableBroadcast(own_condition_variable());
        wake_relay(pending.types, pending.reasons);
    }
    if (event == XACT_EVENT_COMMIT && pending.for_launcher)
        notify_launcher(MyDatabaseId);
    if (event == XACT_EVENT_COMMIT && pending.for_maintenance)
        request_maintenance();
    unblock_workers();
    pending = {};
}

} // namespace

void wake_for_types_at_commit(const EventTypeBloom& types)
{
    pending.for_waiters = true;
    pending.types.add(types);
}

void wake_all_at_commit()
{
    wake_for_types_at_commit(EventTypeBloom::all());
}

void wake_relay_at_commit(WakeupReason reason)
{
    pending.for_waiters = true;
    pending.reasons |= reason;
}

void notify_launcher_at_commit()
{
    pending.for_launcher = true;
}

void request_maintenance_at_commit()
{
    pending.for_maintenance = true;
}

void wake_all_now()
{
    if (shared == nullptr)
        return;
    ConditionVariableBroadcast(own_condition_variable());
    wake_relay(EventTypeBloom::all(),
               reason_sinks_changed | reason_event_scheduled | reason_schedule_refused);
}

void prepare_to_wait_for_wakeup()
{
    if (shared != nullptr)
        ConditionVariablePrepareToSleep(own_condition_variable());
}

void wait_for_wakeup(long milliseconds)
{
    if (shared != nullptr) {
        (void)ConditionVariableTimedSleep(own_condition_variable(), milliseconds,
                                          wakeup_wait.event_info());
        return;
    }
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, milliseconds,
                    wakeup_wait.event_info());
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
}

void stop_waiting_for_wakeup()
{
    if (shared != nullptr)
        ConditionVariableCancelSleep();
}

void set_up_wakeup()
{
    RegisterXactCallback(on_xact_event, nullptr);
    request_shmem("outbox wakeup", sizeof(SharedState), reinterpret_cast<void**>(&shared),
                  initialize_shmem);
}

} // namespace outbox::ipc
