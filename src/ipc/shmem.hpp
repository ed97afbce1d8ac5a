// Shared memory of the extension: one named segment per request, allocated at server start. There
// is none if the library is not in shared_preload_libraries.
#pragma once

#include "pg/postgres.hpp"

namespace outbox::ipc {

// Requests a segment called `name` in pg_shmem_allocations. Call while the library is being loaded,
// before set_up_shmem(). shmem_startup_hook stores the segment's address in `*address`; `init` runs
// once per server start. Does nothing without preloading.
void request_shmem(const char* name, Size size, void** address, void (*init)(void*));

// Returns the one LWLock for data that is too large for atomics. The caller has checked that there
// is shared memory.
LWLock* shmem_lock();

// Installs shmem_request_hook and shmem_startup_hook. Call once, after all request_shmem().
void set_up_shmem();

} // namespace outbox::ipc
