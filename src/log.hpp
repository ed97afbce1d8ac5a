// The log: append-only, in the order of ids drawn after the transaction's xid.
#pragma once

#include "event.hpp"

namespace outbox {

// Appends the events, in their order, in the caller's transaction.
void append_to_log(const Event* events, int count);

// How many events are worth appending at once.
inline constexpr int append_chunk = 256;

} // namespace outbox
