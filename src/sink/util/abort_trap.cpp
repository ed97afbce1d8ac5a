#include "sink/util/abort_trap.hpp"

#include <unistd.h>

#include <csignal>

namespace outbox::sink {

namespace {

static_assert(AbortFlag::is_always_lock_free, "the handler of a signal uses it");

// Not to be allocated when it is first looked at: that may be in the handler.
[[gnu::tls_model("initial-exec")]] thread_local AbortFlag* of_owner = nullptr;
AbortFlag of_anybody = false;
AbortFlag of_nobody = false;
void (*before_abort)() = nullptr;

// abort() raises the signal in the thread that calls it, and ends the process when this returns.
// Others may send it, too, to the process as a whole, and mean it.
void on_abort(int signal, siginfo_t* cause, void*)
{
    const bool is_own = cause->si_code == SI_TKILL && cause->si_pid == getpid();
    if (!is_own || gettid() == getpid()) {
        struct sigaction usual = {};
        usual.sa_handler = SIG_DFL;
        (void)sigaction(signal, &usual, nullptr);
        (void)raise(signal); // comes when this returns
        return;
    }
    (of_owner != nullptr ? *of_owner : of_nobody).store(true);
    of_anybody.store(true);
    before_abort();
}

} // namespace

void work_for(AbortFlag& mishap) noexcept
{
    of_owner = &mishap;
    // From glibc 2.41 on abort() does not do so before it ends the process.
    sigset_t aborts;
    sigemptyset(&aborts);
    sigaddset(&aborts, SIGABRT);
    (void)pthread_sigmask(SIG_UNBLOCK, &aborts, nullptr);
}

void on_library_abort(void (*last_words)()) noexcept
{
    before_abort = last_words;
    struct sigaction action = {};
    action.sa_sigaction = on_abort;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGABRT, &action, nullptr);
}

bool library_aborted() noexcept
{
    return of_anybody.load();
}

bool library_aborted_unattributed() noexcept
{
    return of_nobody.load();
}

} // namespace outbox::sink
