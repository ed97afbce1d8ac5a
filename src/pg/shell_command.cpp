#include "pg/shell_command.hpp"

#include "pg/exceptions.hpp"

extern "C" {
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "storage/procsignal.h"
#include "utils/wait_event.h"
}

#include <csignal>
#include <cstring>
#include <spawn.h>
#include <sys/wait.h>

extern char** environ;

namespace outbox::pg {

namespace {

// Starts /bin/sh in a process group of its own, with no signal blocked and default handlers.
// Returns 0, or the error number.
int spawn_shell(const std::string& command, pid_t& child)
{
    posix_spawnattr_t attributes;
    sigset_t no_signals, default_signals;
    sigemptyset(&no_signals);
    sigemptyset(&default_signals);
    for (const int signal : {SIGPIPE, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM})
        sigaddset(&default_signals, signal);
    (void)posix_spawnattr_init(&attributes);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                    POSIX_SPAWN_SETSIGDEF);
    (void)posix_spawnattr_setpgroup(&attributes, 0);
    (void)posix_spawnattr_setsigmask(&attributes, &no_signals);
    (void)posix_spawnattr_setsigdefault(&attributes, &default_signals);
    const char* arguments[] = {"sh", "-c", command.c_str(), nullptr};
    const int error = posix_spawn(&child, "/bin/sh", nullptr, &attributes,
                                  const_cast<char* const*>(arguments), environ);
    (void)posix_spawnattr_destroy(&attributes);
    return error;
}

constinit CustomWaitEvent command_wait{"OutboxCommand"};

// Waits up to 50 ms for the process latch and resets it. Throws ServerError.
void wait_for_latch()
{
    constexpr long milliseconds = 50;
    guarded_call([&] {
        (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, milliseconds,
                        command_wait.event_info());
        ResetLatch(MyLatch);
        // DROP DATABASE and others wait until every process has absorbed their barrier.
        if (ProcSignalBarrierPending)
            ProcessProcSignalBarrier();
    });
}

} // namespace

std::string run_shell_command(const std::string& command, std::chrono::seconds limit)
{
    const auto end = std::chrono::steady_clock::now() + limit;
    pid_t child = 0;
    if (const int error = spawn_shell(command, child); error != 0)
        return std::string("it could not be started: ") + std::strerror(error);
    int status = 0;
    pid_t ended;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
        wait_for_latch();
        const bool is_late = std::chrono::steady_clock::now() > end;
        if (ShutdownRequestPending || is_late) {
            (void)kill(-child, SIGKILL);
            (void)waitpid(child, &status, 0);
            return is_late ? "it was killed because it took too long"
                           : "it was killed because the worker is shutting down";
        }
    }
    if (ended < 0)
        return std::string("its exit status is not known: ") + std::strerror(errno);
    if (WIFSIGNALED(status))
        return "it was terminated by signal " + std::to_string(WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        return "it exited with " + std::to_string(WEXITSTATUS(status));
    return {};
}

} // namespace outbox::pg
