#include "ipc/shmem.hpp"

#include "extension/preload.hpp"

extern "C" {
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
}

namespace outbox::ipc {

namespace {

struct ShmemRequest {
    const char* name;
    Size size;
    void** address;
    void (*init)(void*);
};

constexpr int max_requests = 8;
ShmemRequest requests[max_requests];
int request_count = 0;

shmem_request_hook_type next_request_hook = nullptr;
shmem_startup_hook_type next_startup_hook = nullptr;

constexpr const char* tranche = "outbox";

// Requests shared memory for all segments, and the LWLock tranche. For shmem_request_hook.
void on_shmem_request()
{
    if (next_request_hook != nullptr)
        next_request_hook();
    for (int i = 0; i < request_count; ++i)
        RequestAddinShmemSpace(MAXALIGN(requests[i].size));
    RequestNamedLWLockTranche(tranche, 1);
}

// Creates or attaches all segments under AddinShmemInitLock. For shmem_startup_hook.
void on_shmem_startup()
{
    if (next_startup_hook != nullptr)
        next_startup_hook();
    LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
    for (int i = 0; i < request_count; ++i) {
        bool found;
        void* memory = ShmemInitStruct(requests[i].name, requests[i].size, &found);
        if (!found)
            requests[i].init(memory);
        *requests[i].address = memory;
    }
    LWLockRelease(AddinShmemInitLock);
}

} // namespace

void request_shmem(const char* name, Size size, void** address, void (*init)(void*))
{
    if (!preloaded)
        return;
    if (request_count == max_requests)
        elog(ERROR, "too many shared memory requests");
    requests[request_count++] = {name, size, address, init};
}

LWLock* shmem_lock()
{
    return &GetNamedLWLockTranche(tranche)->lock;
}

void set_up_shmem()
{
    if (!preloaded)
        return;
    next_request_hook = shmem_request_hook;
    shmem_request_hook = on_shmem_request;
    next_startup_hook = shmem_startup_hook;
    shmem_startup_hook = on_shmem_startup;
}

} // namespace outbox::ipc
