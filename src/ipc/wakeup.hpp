// Waking those who wait for events: callers of outbox_wait(), and the relay. A transaction that has
// something for them notes what, and its commit wakes them: no NOTIFY, no work for a producer that
// nobody waits for.
#pragma once

#include "core/event_type_bloom.hpp"
#include "ipc/worker_registry.hpp"

namespace outbox::ipc {

// This transaction brings events of these types.
void wake_for_types_at_commit(const EventTypeBloom& types);

// This transaction changes what those who wait in this database may find.
void wake_all_at_commit();

// This transaction has something else for the relay.
void wake_relay_at_commit(WakeupReason reason);

// The launcher should look at this database, or at one that this transaction has made.
void notify_launcher_at_commit();

// A worker should do maintenance.
void request_maintenance_at_commit();

// Somebody else's transaction, which was prepared, has just been committed by this session.
void wake_all_now();

// Between the two, look for what you wait for: what comes after the first call ends the second.
void prepare_to_wait_for_wakeup();
void wait_for_wakeup(long milliseconds);
void stop_waiting_for_wakeup();

// Once, when the library is loaded.
void set_up_wakeup();

} // namespace outbox::ipc
