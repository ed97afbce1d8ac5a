#pragma once

#include <csignal>
#include <pthread.h>

namespace outbox::sink {

// No signal reaches this thread while one of these lives, nor any thread that a library starts
// meanwhile: the server's handlers must run in the server's own thread alone.
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
