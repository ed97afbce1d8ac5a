#include "ipc/worker_main.hpp"

#include "extension/worker_transaction.hpp"
#include "ipc/worker_registry.hpp"
#include "pg/exceptions.hpp"

extern "C" {
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
}

namespace outbox::ipc {

void run_worker(const WorkerMain& worker, int slot)
{
    pqsignal(SIGHUP, SignalHandlerForConfigReload);
    pqsignal(SIGTERM, worker.on_sigterm);
    BackgroundWorkerUnblockSignals();
    const Oid database = database_of_slot(slot);
    if (!OidIsValid(database))
        proc_exit(0);
    BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
    if (!worker.attach(slot))
        proc_exit(0);
    // The macro AllocSetContextCreate() takes nothing but a literal.
    MemoryContextSwitchTo(
        AllocSetContextCreateInternal(TopMemoryContext, worker.name, ALLOCSET_DEFAULT_SIZES));
    pg::sql_entry([&] { worker.run(slot); });
    proc_exit(0);
}

void override_guc(const char* name, const char* value)
{
    SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
}

void override_common_gucs(const char* application_name)
{
    override_guc("application_name", application_name);
    // Plans look expensive without sequential scans, but JIT compilation takes longer than they do.
    override_guc("jit", "off");
    override_guc("outbox.tenant_id", ""); // a worker serves all tenants
    disable_timeouts();
    override_guc("default_transaction_read_only", "off");
    override_guc("default_transaction_isolation", "read committed");
}

} // namespace outbox::ipc
