#include "ipc/shmem.hpp"

#include "extension/preload.hpp"

extern "C" {
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
}

namespace outbox::pg {

namespace {

struct Wish {
    const char* name;
    Size size;
    void** where;
    void (*initialize)(void*);
};

constexpr int max_wishes = 8;
Wish wishes[max_wishes];
int wish_count = 0;

shmem_request_hook_type next_request_hook = nullptr;
shmem_startup_hook_type next_startup_hook = nullptr;

constexpr const char* tranche = "outbox";

void request_memory()
{
    if (next_request_hook != nullptr)
        next_request_hook();
    for (int i = 0; i < wish_count; ++i)
        RequestAddinShmemSpace(MAXALIGN(wishes[i].size));
    RequestNamedLWLockTranche(tranche, 1);
}

void start_memory()
{
    if (next_startup_hook != nullptr)
        next_startup_hook();
    LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
    for (int i = 0; i < wish_count; ++i) {
        bool found;
        void* memory = ShmemInitStruct(wishes[i].name, wishes[i].size, &found);
        if (!found)
            wishes[i].initialize(memory);
        *wishes[i].where = memory;
    }
    LWLockRelease(AddinShmemInitLock);
}

} // namespace

void want_shared(const char* name, Size size, void** where, void (*initialize)(void*))
{
    if (!preloaded)
        return;
    if (wish_count == max_wishes)
        elog(ERROR, "too many pieces of shared memory");
    wishes[wish_count++] = {name, size, where, initialize};
}

LWLock* shared_lock()
{
    return &GetNamedLWLockTranche(tranche)->lock;
}

void set_up_shared()
{
    if (!preloaded)
        return;
    next_request_hook = shmem_request_hook;
    shmem_request_hook = request_memory;
    next_startup_hook = shmem_startup_hook;
    shmem_startup_hook = start_memory;
}

} // namespace outbox::pg
