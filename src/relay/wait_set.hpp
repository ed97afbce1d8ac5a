// The wait event set of the relay's poll loop: its latch and the descriptors of the sinks.
#pragma once

#include "pg/postgres.hpp"

#include <span>

namespace outbox {

// Has no destructor: it lives as long as the process. Close it whenever a descriptor
// is added or closed.
class WaitSet {
public:
    // Returns false if open() must be called before wait().
    bool is_open() const { return set_ != nullptr; }

    // Makes the set of latch, postmaster death and these descriptors. It must be closed. Raises
    // server errors: call inside pg::guarded_call().
    void open(std::span<const int> sockets);
    // Frees the set, if there is one; the next open() makes another.
    void close();

    // Sleeps until the latch is set, a descriptor is readable or the timeout ends; then resets the
    // latch. Exits the process if the postmaster has died. Raises server errors.
    void wait(long milliseconds);

private:
    WaitEventSet* set_ = nullptr;
    pg::CustomWaitEvent wait_{"OutboxRelay"};
};

} // namespace outbox
