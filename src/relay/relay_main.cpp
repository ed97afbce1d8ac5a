// The background worker process of a relay.
#include "extension/guc.hpp"
#include "extension/worker_transaction.hpp"
#include "ipc/worker_main.hpp"
#include "ipc/worker_registry.hpp"
#include "relay/relay.hpp"
#include "sink/kafka/producer.hpp"
#include "sink/kafka/threaded_sink.hpp"
#include "sink/util/abort_trap.hpp"

extern "C" {
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "utils/varlena.h"
}

#include <curl/curl.h>
#include <malloc.h>
#include <unistd.h>

#include <cstring>

namespace outbox {

namespace {

// Ends the loop by ShutdownRequestPending. A wait for a synchronous standby is interrupted, because
// the standby may be gone. After an abort of a library the first SIGTERM lets the loop record the
// cause, and the second one interrupts it.
void on_sigterm(SIGNAL_ARGS)
{
    const int saved_errno = errno;
    const bool is_asked_again = ShutdownRequestPending;
    ShutdownRequestPending = true;
    if (sink::library_aborted() ? is_asked_again : is_waiting_for_commit) {
        ProcDiePending = true;
        InterruptPending = true;
    }
    SetLatch(MyLatch);
    errno = saved_errno;
}

// Runs in the thread that called abort(): SIGTERM the main loop, again after 5 s, and return after
// 30 s, which lets abort() end the process. The loop may be waiting for this very thread.
void terminate_main_loop()
{
    constexpr unsigned seconds_to_leave = 5, seconds_to_end = 25;
    (void)kill(getpid(), SIGTERM);
    (void)sleep(seconds_to_leave);
    (void)kill(getpid(), SIGTERM);
    (void)sleep(seconds_to_end);
}

// Exit callback that runs last: calls _exit() if threads of a library may still run, because exit()
// would destroy static objects that they use.
void exit_without_atexit(int code, Datum)
{
    if (sink::has_kafka_threads() || sink::has_sink_threads())
        _exit(code);
}

// Sets GUCs, malloc options and libcurl of the process, and runs the relay to its end.
void run(int slot)
{
    set_worker_gucs();
    // malloc() takes memory of large events by mmap() and returns it at once. For small events,
    // which come and go by the thousand, it keeps 8 MB of heap and has no fast bins to consolidate.
    (void)mallopt(M_MMAP_THRESHOLD, 128 * 1024);
    (void)mallopt(M_TRIM_THRESHOLD, 8 * 1024 * 1024);
    (void)mallopt(M_MXFAST, 0);
    sink::on_library_abort(terminate_main_loop);
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    run_relay(slot);
}

} // namespace

void set_worker_gucs()
{
    // A settlement must be durable, and remote_apply is stronger. It stays until the next reload.
    if (synchronous_commit != SYNCHRONOUS_COMMIT_REMOTE_APPLY)
        ipc::override_guc("synchronous_commit", "on");
    // A sink whose rows another session has locked must not delay other sinks for long.
    ipc::override_guc("lock_timeout", "500ms");
    // as_owner() sets both in each transaction; set here, it finds nothing to change.
    ipc::override_guc("search_path", owner_search_path);
    ipc::override_guc("enable_seqscan", "off");
    ipc::override_common_gucs("outbox relay");
}

bool is_database_served(const char* database)
{
    if (!settings::relay)
        return false;
    if (database == nullptr || *settings::databases == '\0')
        return true;
    List* names = nullptr;
    char* list = pstrdup(settings::databases);
    bool found = false;
    if (SplitIdentifierString(list, ',', &names)) {
        ListCell* cell;
        foreach (cell, names)
            found = found || std::strcmp(static_cast<const char*>(lfirst(cell)), database) == 0;
    }
    list_free(names);
    pfree(list);
    return found;
}

} // namespace outbox

#pragma GCC visibility push(default)
extern "C" {
PGDLLEXPORT void outbox_relay_main(Datum slot);
}
#pragma GCC visibility pop

void outbox_relay_main(Datum slot)
{
    using namespace outbox;
    // Registered before any other callback: callbacks run in reverse order.
    on_proc_exit(exit_without_atexit, 0);
    ipc::run_worker({"outbox relay", on_sigterm, ipc::attach_worker, run}, DatumGetInt32(slot));
}
