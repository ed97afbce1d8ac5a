// Shared memory. There is some only when the library is loaded at server start.
#pragma once

#include "pg/postgres.hpp"

namespace outbox::pg {

// Asks for a piece; call when the library is loaded. When the server starts, `where` gets its
// address, and `initialize` is called once.
void want_shared(const char* name, Size size, void** where, void (*initialize)(void*));

// One lock for what is too large for atomics. Only when there is shared memory.
LWLock* shared_lock();

// Once, after everybody has asked.
void set_up_shared();

} // namespace outbox::pg
