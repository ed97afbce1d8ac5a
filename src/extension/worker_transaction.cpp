#include "extension/worker_transaction.hpp"

#include "extension/relations.hpp"

extern "C" {
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "utils/backend_status.h"
}

namespace outbox::pg {

volatile sig_atomic_t is_committing = false;

namespace detail {

namespace {

// Where the worker was before the transaction: what it keeps must not be in the transaction's
// memory.
MemoryContext before = nullptr;

// What synchronous_commit is outside of transactions that do not wait.
int wanted = SYNCHRONOUS_COMMIT_ON;

} // namespace

void begin(const char* activity)
{
    before = CurrentMemoryContext;
    wanted = synchronous_commit;
    SetCurrentStatementStartTimestamp();
    StartTransactionCommand();
    PushActiveSnapshot(GetTransactionSnapshot());
    pgstat_report_activity(STATE_RUNNING, activity);
}

void commit(bool waits)
{
    PopActiveSnapshot();
    is_committing = waits;
    if (!waits)
        synchronous_commit = SYNCHRONOUS_COMMIT_OFF;
    else if (ShutdownRequestPending)
        synchronous_commit = SYNCHRONOUS_COMMIT_LOCAL_FLUSH;
    CommitTransactionCommand();
    is_committing = false;
    synchronous_commit = wanted;
    // If the wait for a standby was cut short, nobody may act on what was committed.
    CHECK_FOR_INTERRUPTS();
    pgstat_report_activity(STATE_IDLE, nullptr);
    MemoryContextSwitchTo(before);
}

void roll_back()
{
    is_committing = false;
    synchronous_commit = wanted;
    AbortCurrentTransaction();
    pgstat_report_activity(STATE_IDLE, nullptr);
    MemoryContextSwitchTo(before);
}

} // namespace detail

void lift_time_limits()
{
    const auto lift = [](const char* name) {
        SetConfigOption(name, "0", PGC_SUSET, PGC_S_OVERRIDE);
    };
    lift("statement_timeout");
    // From version 17 on.
    if (GetConfigOption("transaction_timeout", true, false) != nullptr)
        lift("transaction_timeout");
}

bool is_installed()
{
    const MemoryContext context = CurrentMemoryContext;
    bool found = false;
    call([&] {
        StartTransactionCommand();
        found = find_objects().has_value();
        CommitTransactionCommand();
        MemoryContextSwitchTo(context);
    });
    return found;
}

} // namespace outbox::pg
