// NOTIFY for sessions that LISTEN instead of calling outbox_wait() (outbox.notify). The relay sends
// it, never a producer: NOTIFY takes a lock that serializes commits.
#pragma once

#include "pg/postgres.hpp"

namespace outbox {

// Queues NOTIFY, sent at commit, on the channel "outbox_" + name of each consumer with messages to
// claim; skips sinks, paused consumers and names that are too long for a channel. Returns after how
// many milliseconds to check the others again even if no wake-up arrives; LONG_MAX: not at all.
// Call inside as_owner().
long notify_listeners();

} // namespace outbox
