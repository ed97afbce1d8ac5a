// Wakeups at commit, for outbox_wait(), the relay and the launcher. A transaction records its
// wakeups in backend memory; the xact callback broadcasts a condition variable and sets latches in
// shared memory. No NOTIFY: a producer pays nothing for event types that no sink wants.
#pragma once

#include "core/event_type_bloom.hpp"
#include "ipc/worker_registry.hpp"

namespace outbox::ipc {

// Commit of this transaction wakes outbox_wait() callers, and the relay if a sink wants one of
// these event types.
void wake_for_types_at_commit(const EventTypeBloom& types);

// Commit of this transaction wakes outbox_wait() callers, and the relay if it has a sink: for
// changes to consumers, batches and retries of this database.
void wake_all_at_commit();

// Commit of this transaction wakes outbox_wait() callers, and the relay with this reason.
void wake_relay_at_commit(WakeupReason reason);

// Commit of this transaction makes the launcher look at this database again and read pg_database.
void notify_launcher_at_commit();

// Commit of this transaction requests a maintenance run for this database.
void request_maintenance_at_commit();

// Wakes outbox_wait() callers and the relay immediately, with every event type and every reason but
// reason_sink_test. For COMMIT PREPARED: the session that runs it does not know what the
// transaction recorded.
void wake_all_now();

// Adds this process to the waiters of its database. Call it, check the condition, then wait: a
// wakeup after this call ends the wait at once.
void prepare_to_wait_for_wakeup();

// Returns after a wakeup or `milliseconds`; without shared memory only after `milliseconds` or when
// the process latch is set. Processes interrupts, so a query cancel raises its error.
void wait_for_wakeup(long milliseconds);

// Removes this process from the waiters.
void stop_waiting_for_wakeup();

// Registers the xact callback and requests shared memory. Once, when the library is loaded.
void set_up_wakeup();

} // namespace outbox::ipc
