// Functions of the server that the product calls for memory, transactions and snapshots.
#include "pg/postgres.hpp"

#include "kept.hpp"
#include "server.hpp"

#include <cstring>

namespace outbox::model {

namespace {

// Consecutive allocations, each preceded by its size.
alignas(16) char arena[1 << 20];
std::size_t used = 0;

struct alignas(16) Header {
    std::size_t size;
};

void* allocate(std::size_t size)
{
    const std::size_t needed = (sizeof(Header) + size + 15) & ~std::size_t{15};
    if (used + needed > sizeof(arena))
        std::abort();
    auto* header = reinterpret_cast<Header*>(arena + used);
    header->size = size;
    used += needed;
    return header + 1;
}

} // namespace

void free_memory()
{
    used = 0;
}

} // namespace outbox::model

using namespace outbox::model;

extern "C" {

MemoryContext CurrentMemoryContext = nullptr;
volatile sig_atomic_t InterruptPending = false;

void* palloc(Size size)
{
    return allocate(size);
}

void* palloc0(Size size)
{
    return std::memset(allocate(size), 0, size);
}

void* MemoryContextAllocHuge(MemoryContext, Size size)
{
    return allocate(size);
}

void* repalloc_huge(void* pointer, Size size)
{
    const Header* header = static_cast<const Header*>(pointer) - 1;
    return std::memcpy(allocate(size), pointer, std::min(header->size, size));
}

struct varlena* pg_detoast_datum_packed(struct varlena* datum)
{
    return datum;
}

void ProcessInterrupts() {}

// Code in the model raises no error.
bool errstart_cold(int, const char*)
{
    return true;
}
int errcode(int)
{
    return 0;
}
int errmsg(const char* text, ...)
{
    return std::fprintf(stderr, "the product raises an error: %s\n", text);
}
int errmsg_internal(const char* text, ...)
{
    return std::fprintf(stderr, "the product raises an error: %s\n", text);
}
int errhint(const char*, ...)
{
    return 0;
}
void errfinish(const char*, int, const char*)
{
    std::abort();
}

TimestampTz GetCurrentTimestamp()
{
    return 0;
}

// ---- transactions

FullTransactionId GetTopFullTransactionIdIfAny()
{
    return FullTransactionIdFromU64(playing.own_xid);
}

FullTransactionId GetTopFullTransactionId()
{
    if (playing.own_xid == 0)
        playing.own_xid = static_cast<Byte>(ask(Question::xid));
    return GetTopFullTransactionIdIfAny();
}

TransactionId GetTopTransactionId()
{
    return XidFromFullTransactionId(GetTopFullTransactionId());
}

FullTransactionId ReadNextFullTransactionId()
{
    return FullTransactionIdFromU64(ask(Question::next_xid));
}

void CommandCounterIncrement() {}

void ForceSyncCommit()
{
    playing.session().forces_sync = true;
}

void PreventCommandIfReadOnly(const char*) {}

// ---- snapshots

Snapshot GetLatestSnapshot()
{
    return snapshot_of(ask(Question::snapshot));
}

Snapshot RegisterSnapshot(Snapshot snapshot)
{
    return snapshot;
}

void UnregisterSnapshot(Snapshot) {}

} // extern "C"

namespace outbox::model {

Snapshot snapshot_of(std::uint32_t number)
{
    const KeptSnapshot& kept = snapshots()[number];
    auto* snapshot = static_cast<SnapshotData*>(palloc0(sizeof(SnapshotData)));
    snapshot->xmax = static_cast<TransactionId>(kept.xmax);
    snapshot->xip = static_cast<TransactionId*>(palloc(sizeof(TransactionId) * max_sessions * 2));
    for (const Xid xid : kept.running)
        snapshot->xip[snapshot->xcnt++] = static_cast<TransactionId>(xid);
    return snapshot;
}

} // namespace outbox::model
