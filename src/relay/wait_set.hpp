// The sockets that end the relay's sleep, beside its latch.
#pragma once

#include "pg/postgres.hpp"

#include <span>

namespace outbox {

// Not closed by a destructor: an error that ends the process runs none.
class WaitSet {
public:
    bool is_open() const { return set_ != nullptr; }

    // Call under pg::guarded_call().
    void open(std::span<const int> sockets);
    void close();

    // Sleeps until the latch is set, a socket can be read, or the time is over, and resets the
    // latch. Call under pg::guarded_call().
    void wait(long milliseconds);

private:
    WaitEventSet* set_ = nullptr;
    pg::CustomWaitEvent wait_{"OutboxRelay"};
};

} // namespace outbox
