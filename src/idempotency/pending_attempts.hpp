// Attempts that the current transaction has begun, in backend-local memory. An attempt that
// finishes in the same transaction is written once, with its response. An attempt still open at
// commit is written by the pre-commit callback, without a response; another transaction finishes
// it. An attempt that takes over an existing row is written at once.
#pragma once

#include "idempotency/key_store.hpp"

namespace outbox {

// Returns the open attempt of this transaction for the key; nullptr if there is none. The pointer
// is valid until the transaction ends.
const Attempt* find_pending_attempt(const KeyName& name);

// Adds a copy of the attempt. The caller holds the lock of the key. Raises an error if the
// transaction has limits::max_open_attempts already.
void add_pending_attempt(const Attempt& attempt);

// Marks an attempt as finished or abandoned; a rollback of the current subtransaction opens it
// again.
void close_pending_attempt(const Attempt* attempt);

// Registers the xact callbacks. Called once, when the library is loaded.
void set_up_pending_attempts();

} // namespace outbox
