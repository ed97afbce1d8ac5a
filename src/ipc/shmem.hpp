// Shared memory. There is some only when the library is loaded at server start.
#pragma once

#include "pg/postgres.hpp"

namespace outbox::ipc {

// Asks for a piece; call when the library is loaded. When the server starts, `address` gets its
// address, and `init` is called once.
void request_shmem(const char* name, Size size, void** address, void (*init)(void*));

// One lock for what is too large for atomics. Only when there is shared memory.
LWLock* shmem_lock();

// Once, after everybody has asked.
void set_up_shmem();

} // namespace outbox::ipc
