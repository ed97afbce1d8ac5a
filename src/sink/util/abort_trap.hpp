// Survives abort() in library threads. librdkafka asserts on some responses of brokers, and if one
// process of the server aborts, the postmaster restarts all others. The SIGABRT handler therefore
// keeps the aborting thread in the handler and sets flags, so that the relay can leave in order.
#pragma once

#include <atomic>

namespace outbox::sink {

// Flag of one sink: true when a thread of its library has called abort().
using AbortFlag = std::atomic<bool>;

// Registers the flag that an abort() of the calling thread will set; the flag must outlive the
// thread. Unblocks SIGABRT in this thread.
void attribute_aborts_to(AbortFlag& abort_flag) noexcept;

// Installs the SIGABRT handler of the process. In any thread but the main one, abort() sets the
// thread's flag and then calls `callback` inside the signal handler; the process aborts when the
// callback returns.
void on_library_abort(void (*callback)()) noexcept;

// Returns true if any thread but the main one has called abort().
bool library_aborted() noexcept;

// Returns true if a thread has called abort() that never called attribute_aborts_to(). A thread
// whose sink is destroyed already is not unattributed.
bool library_aborted_unattributed() noexcept;

} // namespace outbox::sink
