// The background worker process of maintenance. It ends when the due steps are done.
#include "extension/worker_transaction.hpp"
#include "ipc/worker_main.hpp"
#include "ipc/worker_registry.hpp"
#include "maintenance/maintenance.hpp"

extern "C" {
#include "postmaster/interrupt.h"
}

namespace outbox {

namespace {

// Cancels the running statement; run_maintenance() starts no other.
void on_sigterm(SIGNAL_ARGS)
{
    const int saved_errno = errno;
    ShutdownRequestPending = true;
    QueryCancelPending = true;
    InterruptPending = true;
    SetLatch(MyLatch);
    errno = saved_errno;
}

// Overrides GUCs of this process: common ones, lock_timeout and synchronous_commit.
void set_worker_gucs()
{
    ipc::override_common_gucs("outbox maintenance");
    // Steps that take strong locks set a shorter lock_timeout; this one is for the others.
    ipc::override_guc("lock_timeout", "1s");
    // A step that a crash takes back is due again.
    ipc::override_guc("synchronous_commit", "off");
}

// Attaches to the worker slot. Returns false if another maintenance worker is attached, or a
// session has blocked the workers.
bool attach(int slot)
{
    return ipc::attach_maintenance_worker(slot) && !ipc::are_workers_blocked(MyDatabaseId);
}

void run(int)
{
    set_worker_gucs();
    if (is_extension_installed())
        run_maintenance();
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
    ipc::run_worker({"outbox maintenance", on_sigterm, attach, run}, DatumGetInt32(slot));
}
