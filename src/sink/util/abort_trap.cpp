#include "sink/util/abort_trap.hpp"

#include <unistd.h>

#include <csignal>

namespace outbox::sink {

namespace {

static_assert(AbortFlag::is_always_lock_free, "a signal handler uses AbortFlag");

// The initial-exec model avoids lazy allocation, which would not be safe in the signal handler.
[[gnu::tls_model("initial-exec")]] thread_local AbortFlag* thread_abort_flag = nullptr;
AbortFlag any_thread_aborted = false;
AbortFlag unattributed_thread_aborted = false;
void (*abort_callback)() = nullptr;

// Handles SIGABRT. abort() raises the signal in the calling thread (SI_TKILL from this process) and
// ends the process when the handler returns. A SIGABRT from another process or in the main thread
// gets the default action. Any other sets the flags and calls the callback.
void on_abort(int signal, siginfo_t* cause, void*)
{
    const bool is_own = cause->si_code == SI_TKILL && cause->si_pid == getpid();
    if (!is_own || gettid() == getpid()) {
        struct sigaction default_action = {};
        default_action.sa_handler = SIG_DFL;
        (void)sigaction(signal, &default_action, nullptr);
        (void)raise(signal); // delivered when the handler returns
        return;
    }
    (thread_abort_flag != nullptr ? *thread_abort_flag : unattributed_thread_aborted).store(true);
    any_thread_aborted.store(true);
    abort_callback();
}

} // namespace

void attribute_aborts_to(AbortFlag& abort_flag) noexcept
{
    thread_abort_flag = &abort_flag;
    // abort() of glibc 2.41 and later does not unblock SIGABRT, so that a thread which blocks the
    // signal would end the process without a call of the handler.
    sigset_t aborts;
    sigemptyset(&aborts);
    sigaddset(&aborts, SIGABRT);
    (void)pthread_sigmask(SIG_UNBLOCK, &aborts, nullptr);
}

void on_library_abort(void (*callback)()) noexcept
{
    abort_callback = callback;
    struct sigaction action = {};
    action.sa_sigaction = on_abort;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGABRT, &action, nullptr);
}

bool library_aborted() noexcept
{
    return any_thread_aborted.load();
}

bool library_aborted_unattributed() noexcept
{
    return unattributed_thread_aborted.load();
}

} // namespace outbox::sink
