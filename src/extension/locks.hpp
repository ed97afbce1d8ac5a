// Heavyweight locks on consumers and keys. They are advisory locks with values of the lock tag's
// fourth field that users' advisory locks do not have.
#pragma once

#include "pg/postgres.hpp"

namespace outbox {

// Short lock on the hash of a key, between looking for a row and inserting it: at most one session
// is in that section. Keys with equal hashes only wait for each other. After an error the end of
// the transaction releases the lock.
void lock_key(uint64 hash);

// Releases the lock of lock_key() before the transaction ends.
void unlock_key(uint64 hash);

// Locks that the end of the transaction releases.

// Locks a consumer's cursor for writing. Returns false if another session holds the lock for longer
// than `milliseconds`, or than lock_timeout if that is shorter. 0 does not wait.
bool lock_consumer(int32 consumer, int milliseconds);

// Locks a consumer's cursor for writing. Waits without a limit of its own: lock_timeout raises an
// error.
void lock_consumer(int32 consumer);

// Locks an idempotency key for an attempt. Returns false if another session holds the lock for
// longer than `milliseconds`, or than lock_timeout if that is shorter. 0 does not wait.
bool lock_idempotency_key(uint64 hash, int milliseconds);

// Releases the lock of an idempotency key before the transaction ends.
void unlock_idempotency_key(uint64 hash);

// Locks a consumer partition for delivery, so that one session at a time delivers it in order.
// Returns false if another session holds the lock.
bool try_lock_consumer_partition(int32 consumer, int32 partition);

// Return true if another session holds the lock. They take the lock briefly, so another session's
// try_lock can fail meanwhile.
bool is_consumer_locked(int32 consumer);
bool is_consumer_partition_locked(int32 consumer, int32 partition);

// Releases a consumer's lock before the transaction ends. The caller has not moved the cursor in
// this transaction: others would not see that yet.
void unlock_consumer(int32 consumer);

// Keeps the consumer's lock, which this transaction holds, as a session lock beyond its end. One
// consumer at a time.
void keep_lock_for_session(int32 consumer);

// Releases the session lock of keep_lock_for_session(), if there is one.
void release_session_lock();

} // namespace outbox
