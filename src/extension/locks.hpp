// Locks in memory, in spaces of our own beside the advisory locks of users.
#pragma once

#include "pg/postgres.hpp"

namespace outbox {

// Short locks on keys: between looking for a row and inserting it, nobody else does the same.
// Different keys with the same hash only wait for each other. An error releases the lock with the
// transaction.
void lock_key(uint64 hash);
void unlock_key(uint64 hash);

// Locks that stay until the transaction ends.

// The lock of whoever moves a consumer's cursor. False if it is not to be had within the time.
bool lock_consumer(int32 consumer, int milliseconds);

// Waits for as long as lock_timeout allows.
void lock_consumer(int32 consumer);

// The lock of whoever attempts to use an idempotency key. False if it is not to be had within the
// time.
bool lock_idempotency_key(uint64 hash, int milliseconds);
void unlock_idempotency_key(uint64 hash);

// The lock of whoever hands out a partition of an ordered consumer. False if somebody has it.
bool try_lock_consumer_partition(int32 consumer, int32 partition);

// Does another transaction hold the lock?
bool is_consumer_locked(int32 consumer);
bool is_consumer_partition_locked(int32 consumer, int32 partition);

// Gives a consumer's lock back: only for one who has not moved the cursor.
void unlock_consumer(int32 consumer);

// Keeps a consumer's lock that this transaction has beyond its end. One at a time.
void keep_lock_for_session(int32 consumer);
// Gives back the one that is held, if one is.
void release_session_lock();

} // namespace outbox
