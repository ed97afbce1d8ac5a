// What this transaction has begun and not settled: attempts to use an idempotency key. One that is
// finished in the same transaction is written once, with its answer. One that is not is written
// when the transaction commits, and goes on in another. One that takes over the row of another is
// written at once.
#pragma once

#include "idempotency/key_store.hpp"

namespace outbox {

// The attempt under this name, unless it was finished or abandoned.
const Attempt* find_pending_attempt(const KeyName& name);

// Takes a copy. Needs the lock of the name.
void add_pending_attempt(const Attempt& attempt);

// It is finished or abandoned, unless the subtransaction is rolled back.
void close_pending_attempt(const Attempt* attempt);

// Registers the callbacks; once, when the library is loaded.
void set_up_pending_attempts();

} // namespace outbox
