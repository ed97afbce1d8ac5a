// The background worker that a relay runs in.
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

// The loop sees to it, unless the process waits for a standby that does not answer. After a mishap
// it has something to write first, but not for ever.
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

// The loop is to leave, or else whatever keeps it from that. If nothing helps, because it waits for
// the very thread that has failed, that thread takes the process with it after all.
void terminate_main_loop()
{
    constexpr unsigned seconds_to_leave = 5, seconds_to_end = 25;
    (void)kill(getpid(), SIGTERM);
    (void)sleep(seconds_to_leave);
    (void)kill(getpid(), SIGTERM);
    (void)sleep(seconds_to_end);
}

// Runs last of all. Threads of a library may still be at work, and what exit() tears down is theirs
// as well.
void exit_without_atexit(int code, Datum)
{
    if (sink::has_kafka_threads() || sink::has_sink_threads())
        _exit(code);
}

void run(int slot)
{
    set_worker_gucs();
    // Large events go back to the system at once, not into a heap that only grows. What is small
    // comes and goes by the thousand: some of the heap is kept, and nothing is tidied up in
    // between.
    (void)mallopt(M_MMAP_THRESHOLD, 128 * 1024);
    (void)mallopt(M_TRIM_THRESHOLD, 8 * 1024 * 1024);
    (void)mallopt(M_MXFAST, 0);
    sink::on_library_abort(terminate_main_loop);
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    run_relay(slot);
}

} // namespace

// What the relay's transactions count on, whatever the database's defaults are.
void set_worker_gucs()
{
    // What is published must be durable. Anything stronger is the DBA's choice, until the next
    // reload.
    if (synchronous_commit != SYNCHRONOUS_COMMIT_REMOTE_APPLY)
        ipc::override_guc("synchronous_commit", "on");
    // One sink that somebody has locked must not hold up the others for long.
    ipc::override_guc("lock_timeout", "500ms");
    // As the owner's transactions have them anyway.
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
    // Before the connection registers callbacks of its own: the last one runs first.
    on_proc_exit(exit_without_atexit, 0);
    ipc::run_worker({"outbox relay", on_sigterm, ipc::attach_worker, run}, DatumGetInt32(slot));
}
