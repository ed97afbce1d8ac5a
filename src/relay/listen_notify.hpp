// NOTIFY, for those who LISTEN instead of calling outbox_wait(). From the relay, never from
// producers.
#pragma once

#include "pg/postgres.hpp"

namespace outbox {

// Notifies the channel of each consumer that has something to claim: outbox_ and its name. Returns
// in how many milliseconds another may have, if nobody calls. Call inside pg::as_owner().
long notify_listeners();

} // namespace outbox
