#include "pg/transaction.hpp"

extern "C" {
#include "pgstat.h"
#include "utils/backend_status.h"
}

namespace outbox::pg::detail {

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
    if (!waits)
        synchronous_commit = SYNCHRONOUS_COMMIT_OFF;
    CommitTransactionCommand();
    synchronous_commit = wanted;
    pgstat_report_activity(STATE_IDLE, nullptr);
    MemoryContextSwitchTo(before);
}

void roll_back()
{
    synchronous_commit = wanted;
    AbortCurrentTransaction();
    pgstat_report_activity(STATE_IDLE, nullptr);
    MemoryContextSwitchTo(before);
}

} // namespace outbox::pg::detail
