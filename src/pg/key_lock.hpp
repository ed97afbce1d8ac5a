// Short locks on keys: between looking for a row and inserting it, nobody else does the same.
#pragma once

#include "pg/prelude.hpp"

namespace outbox::pg {

// A lock of the server's, in a space of our own beside the advisory locks of users. Different keys
// with the same hash only wait for each other. An error releases it with the transaction.
void lock_key(uint64 hash);
void unlock_key(uint64 hash);

} // namespace outbox::pg
