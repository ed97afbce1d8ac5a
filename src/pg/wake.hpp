// Waking those who wait for events. A transaction that has something for them sets a flag, and its
// commit wakes them: no NOTIFY, no work for a producer that nobody waits for.
#pragma once

#include "pg/prelude.hpp"

namespace outbox::pg {

// The commit of this transaction is of interest to those who wait in this database.
void wake_at_commit();

// Between the two, look for what you wait for: what comes after the first call ends the second.
void prepare_to_wait();
void wait_for_wake(long milliseconds);
void stop_waiting();

// Once, when the library is loaded.
void set_up_wake();

} // namespace outbox::pg
