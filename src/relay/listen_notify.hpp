// NOTIFY for sessions that LISTEN instead of calling outbox_wait() (outbox.notify). The relay sends
// it, never a producer: NOTIFY takes a lock that serializes commits.
#pragma once

#include "pg/postgres.hpp"

namespace outbox {

// Sends NOTIFY on the channel "outbox_" + name of each consumer with messages to claim. Returns
// after how many milliseconds to check again even if no wake-up arrives. Call inside as_owner().
long notify_listeners();

} // namespace outbox
