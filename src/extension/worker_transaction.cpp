#include "extension/worker_transaction.hpp"

#include "extension/relations.hpp"

extern "C" {
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "utils/backend_status.h"
}

namespace outbox {

volatile sig_atomic_t is_waiting_for_commit = false;

namespace detail {

namespace {

// CurrentMemoryContext before the transaction, restored at its end: the worker's allocations
// between transactions must not be in transaction memory.
MemoryContext outer_context = nullptr;

// synchronous_commit before the transaction; commit_transaction() changes it for one commit.
int configured_synchronous_commit = SYNCHRONOUS_COMMIT_ON;

} // namespace

void begin_transaction(const char* activity)
{
    outer_context = CurrentMemoryContext;
    configured_synchronous_commit = synchronous_commit;
    SetCurrentStatementStartTimestamp();
    StartTransactionCommand();
    PushActiveSnapshot(GetTransactionSnapshot());
    pgstat_report_activity(STATE_RUNNING, activity);
}

void commit_transaction(bool waits_for_flush)
{
    PopActiveSnapshot();
    is_waiting_for_commit = waits_for_flush;
    if (!waits_for_flush)
        synchronous_commit = SYNCHRONOUS_COMMIT_OFF;
    else if (ShutdownRequestPending)
        synchronous_commit = SYNCHRONOUS_COMMIT_LOCAL_FLUSH;
    CommitTransactionCommand();
    is_waiting_for_commit = false;
    synchronous_commit = configured_synchronous_commit;
    // If the wait for a synchronous standby was interrupted, the process must exit here: the caller
    // would act on a commit that no standby has confirmed.
    CHECK_FOR_INTERRUPTS();
    pgstat_report_activity(STATE_IDLE, nullptr);
    MemoryContextSwitchTo(outer_context);
}

void roll_back_transaction()
{
    is_waiting_for_commit = false;
    synchronous_commit = configured_synchronous_commit;
    AbortCurrentTransaction();
    pgstat_report_activity(STATE_IDLE, nullptr);
    MemoryContextSwitchTo(outer_context);
}

} // namespace detail

void disable_timeouts()
{
    const auto disable = [](const char* name) {
        SetConfigOption(name, "0", PGC_SUSET, PGC_S_OVERRIDE);
    };
    disable("statement_timeout");
    // PostgreSQL 17 and later.
    if (GetConfigOption("transaction_timeout", true, false) != nullptr)
        disable("transaction_timeout");
}

bool is_extension_installed()
{
    const MemoryContext context = CurrentMemoryContext;
    bool found = false;
    pg::guarded_call([&] {
        StartTransactionCommand();
        found = find_extension_relations().has_value();
        CommitTransactionCommand();
        MemoryContextSwitchTo(context);
    });
    return found;
}

} // namespace outbox
