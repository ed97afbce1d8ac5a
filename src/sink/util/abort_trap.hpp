// librdkafka asserts much of what brokers tell it, and a process of the server that aborts takes
// all others with it. So a thread of a library that aborts is stopped where it is, and who uses the
// library hears of it.
#pragma once

#include <atomic>

namespace outbox::sink {

// Becomes true when a thread has failed that works for its owner.
using AbortFlag = std::atomic<bool>;

// This thread does, from now on. The mishap outlives the thread.
void attribute_aborts_to(AbortFlag& abort_flag) noexcept;

// A thread that aborts, unless it is the main one, says so and then calls this, within a handler of
// its signal. When that returns, the process aborts.
void on_library_abort(void (*callback)()) noexcept;

// Has any thread failed so?
bool library_aborted() noexcept;

// Has one that works for nobody we know of? (One whose owner has gone meanwhile did work for it.)
bool library_aborted_unattributed() noexcept;

} // namespace outbox::sink
