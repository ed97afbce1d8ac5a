#pragma once

#include <csignal>
#include <pthread.h>

namespace outbox::sink {

// Blocks all signals of the thread for the lifetime of the object. Threads that a library starts
// meanwhile inherit the mask: the server's signal handlers must run in the main thread only.
class SignalsBlocked {
public:
    SignalsBlocked() noexcept
    {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

private:
    sigset_t before_;
};

} // namespace outbox::sink
