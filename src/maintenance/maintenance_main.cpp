// The background worker that maintenance runs in. It comes, does what is due, and goes.
#include "extension/worker_transaction.hpp"
#include "ipc/worker_registry.hpp"
#include "maintenance/maintenance.hpp"
#include "pg/exceptions.hpp"

extern "C" {
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
}

namespace outbox {

namespace {

// A statement that is under way is canceled, and no other follows.
void on_sigterm(SIGNAL_ARGS)
{
    const int saved_errno = errno;
    ShutdownRequestPending = true;
    QueryCancelPending = true;
    InterruptPending = true;
    SetLatch(MyLatch);
    errno = saved_errno;
}

void set_worker_gucs()
{
    const auto set_guc = [](const char* name, const char* value) {
        SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
    };
    set_guc("application_name", "outbox maintenance");
    // Steps that need strong locks have less patience. This is for the others.
    set_guc("lock_timeout", "1s");
    set_guc("jit", "off");
    set_guc("outbox.tenant_id", ""); // it works for all of them
    disable_timeouts();
    set_guc("default_transaction_read_only", "off");
    set_guc("default_transaction_isolation", "read committed");
    // Lost in a crash, it is done again.
    set_guc("synchronous_commit", "off");
}

} // namespace

} // namespace outbox

#pragma GCC visibility push(default)
extern "C" {
PGDLLEXPORT void outbox_maintenance_main(Datum slot);
}
#pragma GCC visibility pop

void outbox_maintenance_main(Datum slot)
{
    using namespace outbox;
    const int slot_number = DatumGetInt32(slot);
    pqsignal(SIGHUP, SignalHandlerForConfigReload);
    pqsignal(SIGTERM, on_sigterm);
    BackgroundWorkerUnblockSignals();
    const Oid database = ipc::database_of_slot(slot_number);
    if (!OidIsValid(database))
        proc_exit(0);
    BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
    if (!ipc::attach_maintenance_worker(slot_number) || ipc::are_workers_blocked(database))
        proc_exit(0);
    set_worker_gucs();
    MemoryContextSwitchTo(
        AllocSetContextCreate(TopMemoryContext, "outbox maintenance", ALLOCSET_DEFAULT_SIZES));
    pg::sql_entry([] {
        if (is_extension_installed())
            run_maintenance();
    });
    proc_exit(0);
}
