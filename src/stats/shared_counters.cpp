#include "stats/shared_counters.hpp"

#include "extension/guc.hpp"
#include "ipc/shmem.hpp"
#include "pg/datum.hpp"

extern "C" {
#include "common/hashfn.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "utils/syscache.h"
}

#include <algorithm>
#include <cstring>

namespace outbox::stats {

namespace {

constexpr int rate_buckets = 16; // a ring: one minute of complete buckets, the current one, spares
constexpr int64 bucket_seconds = 5;
constexpr int buckets_in_minute = 12;

using Counter = pg_atomic_uint64;

// Keys of free slots in the open-addressing tables. A slot that was never used ends a probe; a
// probe continues past a tombstone, and an insert reuses both.
constexpr uint64 never_used = 0;
constexpr uint64 tombstone = 1;

struct ConsumerSlot {
    Counter key; // upper half: oid of the database; lower half: id of the consumer
    Counter delivered, failed, dead, bytes;
    Counter latency[latency::bucket_count];
    Counter latency_sum;        // microseconds
    Counter rate[rate_buckets]; // upper half: number of the bucket since 2000; lower half: count
    Counter since;
    TimestampTz last_error_at; // this and last_error are protected by ipc::shmem_lock()
    char last_error[sizeof(ConsumerCounts::last_error)];

    // Sets the counters to 0, except `rate`. Keeps the key and the last error.
    void clear(TimestampTz now)
    {
        for (Counter* counter : {&delivered, &failed, &dead, &bytes, &latency_sum})
            pg_atomic_write_u64(counter, 0);
        for (Counter& counter : latency)
            pg_atomic_write_u64(&counter, 0);
        pg_atomic_write_u64(&since, static_cast<uint64>(now));
    }
};

struct TypeSlot {
    Counter key; // hash of database and name: names with equal hashes share a slot
    Counter enqueued, delivered, failed, dead;
    Counter since;
    Oid database;
    char name[sizeof(TypeCounts::name)];

    // Sets the counters to 0. Keeps key, database and name.
    void clear(TimestampTz now)
    {
        for (Counter* counter : {&enqueued, &delivered, &failed, &dead})
            pg_atomic_write_u64(counter, 0);
        pg_atomic_write_u64(&since, static_cast<uint64>(now));
    }
};

// The tables in shared memory. Slot 0 of each counts all keys without a slot.
struct SharedCounters {
    pg_atomic_uint32 overflowed;
    ConsumerSlot consumers[consumer_slots];
    TypeSlot types[type_slots];
};

SharedCounters* shared = nullptr;

// Sets all counters to 0, once per server start.
void initialize_shmem(void* memory)
{
    auto* counters = static_cast<SharedCounters*>(memory);
    std::memset(static_cast<void*>(counters), 0, sizeof(SharedCounters));
    const TimestampTz now = GetCurrentTimestamp();
    pg_atomic_init_u32(&counters->overflowed, 0);
    for (ConsumerSlot& slot : counters->consumers)
        slot.clear(now);
    for (TypeSlot& slot : counters->types)
        slot.clear(now);
}

// Adds to a counter in shared memory atomically. A count of 0 does not write to it.
void add(Counter& counter, uint64 count)
{
    if (count > 0)
        (void)pg_atomic_fetch_add_u64(&counter, static_cast<int64>(count));
}

// Returns the slot of a key, else a free slot for it, else 0. The caller tells the first two apart
// by the slot's key. Takes no lock.
template <typename Slot>
int find_slot(Slot* slots, int count, uint64 key)
{
    int free = 0;
    int at = static_cast<int>(key % static_cast<uint64>(count - 1));
    for (int tries = 0; tries < count - 1; ++tries, at = (at + 1) % (count - 1)) {
        const uint64 found = pg_atomic_read_u64(&slots[at + 1].key);
        if (found == key)
            return at + 1;
        if (free == 0 && (found == never_used || found == tombstone))
            free = at + 1;
        if (found == never_used)
            break;
    }
    return free;
}

// Returns the slot of a key; adds the key under ipc::shmem_lock() if it is new; returns 0 and sets
// `overflowed` if the table is full. `fill` initializes a new slot before its key is published.
template <typename Slot, typename Fill>
int find_or_add_slot(Slot* slots, int count, uint64 key, Fill&& fill)
{
    int at = find_slot(slots, count, key);
    if (at != 0 && pg_atomic_read_u64(&slots[at].key) != key) {
        LWLockAcquire(ipc::shmem_lock(), LW_EXCLUSIVE);
        at = find_slot(slots, count, key);
        if (at != 0 && pg_atomic_read_u64(&slots[at].key) != key) {
            slots[at].clear(GetCurrentTimestamp());
            fill(slots[at]);
            pg_write_barrier();
            pg_atomic_write_u64(&slots[at].key, key);
        }
        LWLockRelease(ipc::shmem_lock());
    }
    if (at == 0)
        pg_atomic_write_u32(&shared->overflowed, 1);
    return at;
}

// Returns the database of a consumer slot; InvalidOid for a free one and for slot 0.
Oid database_of(ConsumerSlot& slot)
{
    return static_cast<Oid>(pg_atomic_read_u64(&slot.key) >> 32);
}

// Returns the number of the rate bucket of this time, counted since 2000.
uint32 rate_bucket_at(TimestampTz now)
{
    return static_cast<uint32>(now / (bucket_seconds * USECS_PER_SEC));
}

// Adds to the rate bucket of `now` by compare and exchange. A bucket that has the count of an older
// minute starts again at 0.
void add_to_rate(ConsumerSlot& slot, uint64 count, TimestampTz now)
{
    const uint32 bucket = rate_bucket_at(now);
    Counter& counter = slot.rate[bucket % rate_buckets];
    uint64 before = pg_atomic_read_u64(&counter);
    uint64 after;
    do {
        const uint64 kept = before >> 32 == bucket ? before & PG_UINT32_MAX : 0;
        after = uint64{bucket} << 32 | Min(kept + count, uint64{PG_UINT32_MAX});
    } while (!pg_atomic_compare_exchange_u64(&counter, &before, after));
}

} // namespace

bool is_enabled()
{
    return shared != nullptr && settings::statistics;
}

TypeSlotNumber type_slot_of(Datum event_type)
{
    // Slots of event types are freed only when their database is dropped, so this cache needs no
    // invalidation.
    struct Known {
        uint64 key;
        TypeSlotNumber slot;
    };
    static Known known[64]; // direct-mapped
    static char last_name[sizeof(TypeSlot::name)];
    static std::size_t last_size = 0; // 0: no last name
    static TypeSlotNumber last_slot;

    const std::string_view name = pg::to_view(event_type);
    // Consecutive events often have the same type.
    if (name.size() == last_size && std::memcmp(name.data(), last_name, last_size) == 0)
        return last_slot;
    const uint64 key = Max(hash_bytes_extended(reinterpret_cast<const unsigned char*>(name.data()),
                                               static_cast<int>(name.size()), MyDatabaseId),
                           tombstone + 1);
    Known& cached = known[key % std::size(known)];
    if (cached.key != key)
        cached = {key, static_cast<TypeSlotNumber>(
                           find_or_add_slot(shared->types, type_slots, key, [&](TypeSlot& slot) {
                               slot.database = MyDatabaseId;
                               slot.name[name.copy(slot.name, sizeof(slot.name) - 1)] = '\0';
                           }))};
    last_size = name.size() <= sizeof(last_name) ? name.copy(last_name, sizeof(last_name)) : 0;
    last_slot = cached.slot;
    return last_slot;
}

int consumer_slot_of(int32 consumer)
{
    const uint64 key = uint64{MyDatabaseId} << 32 | static_cast<uint32>(consumer);
    return find_or_add_slot(shared->consumers, consumer_slots, key,
                            [](ConsumerSlot& slot) { slot.last_error_at = 0; });
}

void add(const TypeDelta& delta)
{
    TypeSlot& slot = shared->types[delta.type];
    add(slot.enqueued, delta.enqueued);
    add(slot.delivered, delta.delivered);
    add(slot.failed, delta.failed);
    add(slot.dead, delta.dead);
}

void add(const ConsumerDelta& delta, TimestampTz now)
{
    ConsumerSlot& slot = shared->consumers[delta.slot];
    add(slot.delivered, delta.delivered);
    add(slot.failed, delta.failed);
    add(slot.dead, delta.dead);
    add(slot.bytes, delta.bytes);
    add(slot.latency_sum, delta.latency_sum);
    for (std::size_t i = 0; i < latency::bucket_count; ++i)
        add(slot.latency[i], delta.latency[i]);
    if (delta.delivered > 0)
        add_to_rate(slot, delta.delivered, now);
}

void record_error(int consumer_slot, Datum error)
{
    ConsumerSlot& slot = shared->consumers[consumer_slot];
    const std::string_view message = pg::to_view(error);
    const auto size =
        static_cast<std::size_t>(pg_mbcliplen(message.data(), static_cast<int>(message.size()),
                                              static_cast<int>(sizeof(slot.last_error)) - 1));
    LWLockAcquire(ipc::shmem_lock(), LW_EXCLUSIVE);
    slot.last_error_at = GetCurrentTimestamp();
    std::memcpy(slot.last_error, message.data(), size);
    slot.last_error[size] = '\0';
    LWLockRelease(ipc::shmem_lock());
}

bool read_consumer_counts(int number, ConsumerCounts& counts)
{
    if (shared == nullptr)
        return false;
    ConsumerSlot& slot = shared->consumers[number];
    if (number > 0 && database_of(slot) != MyDatabaseId)
        return false;
    counts = {};
    counts.consumer = static_cast<int32>(pg_atomic_read_u64(&slot.key) & PG_UINT32_MAX);
    counts.delivered = pg_atomic_read_u64(&slot.delivered);
    counts.failed = pg_atomic_read_u64(&slot.failed);
    counts.dead = pg_atomic_read_u64(&slot.dead);
    counts.bytes = pg_atomic_read_u64(&slot.bytes);
    counts.since = static_cast<TimestampTz>(pg_atomic_read_u64(&slot.since));
    for (std::size_t i = 0; i < latency::bucket_count; ++i)
        counts.latency[i] = pg_atomic_read_u64(&slot.latency[i]);
    counts.latency_sum = pg_atomic_read_u64(&slot.latency_sum);
    const uint32 now = rate_bucket_at(GetCurrentTimestamp());
    uint64 recent = 0;
    for (Counter& counter : slot.rate) {
        const uint64 value = pg_atomic_read_u64(&counter);
        // The current bucket is incomplete, so the rate is that of the twelve before it.
        if (const uint32 age = now - static_cast<uint32>(value >> 32);
            age >= 1 && age <= buckets_in_minute)
            recent += value & PG_UINT32_MAX;
    }
    counts.per_second = static_cast<double>(recent) / (buckets_in_minute * bucket_seconds);
    LWLockAcquire(ipc::shmem_lock(), LW_SHARED);
    counts.last_error_at = slot.last_error_at;
    std::memcpy(counts.last_error, slot.last_error, sizeof(counts.last_error));
    LWLockRelease(ipc::shmem_lock());
    return number > 0 || counts.delivered + counts.failed > 0;
}

bool read_type_counts(int number, TypeCounts& counts)
{
    if (shared == nullptr)
        return false;
    TypeSlot& slot = shared->types[number];
    if (number > 0 && (pg_atomic_read_u64(&slot.key) <= tombstone || slot.database != MyDatabaseId))
        return false;
    pg_read_barrier();
    std::memcpy(counts.name, slot.name, sizeof(counts.name));
    counts.enqueued = pg_atomic_read_u64(&slot.enqueued);
    counts.delivered = pg_atomic_read_u64(&slot.delivered);
    counts.failed = pg_atomic_read_u64(&slot.failed);
    counts.dead = pg_atomic_read_u64(&slot.dead);
    counts.since = static_cast<TimestampTz>(pg_atomic_read_u64(&slot.since));
    return number > 0 || counts.enqueued + counts.delivered + counts.failed > 0;
}

bool has_overflowed()
{
    return shared != nullptr && pg_atomic_read_u32(&shared->overflowed) != 0;
}

void reset_counters()
{
    if (shared == nullptr)
        return;
    const TimestampTz now = GetCurrentTimestamp();
    for (ConsumerSlot& slot : shared->consumers)
        if (database_of(slot) == MyDatabaseId)
            slot.clear(now);
    for (TypeSlot& slot : shared->types)
        if (slot.database == MyDatabaseId)
            slot.clear(now);
}

void free_unused_slots(std::span<const int32> consumers)
{
    if (shared == nullptr)
        return;
    const auto is_gone = [](Oid database) {
        return OidIsValid(database) &&
               !SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(database));
    };
    for (ConsumerSlot& slot : shared->consumers) {
        uint64 key = pg_atomic_read_u64(&slot.key);
        const Oid database = database_of(slot);
        const bool is_known =
            std::ranges::find(consumers, static_cast<int32>(key & PG_UINT32_MAX)) !=
            consumers.end();
        if (database == MyDatabaseId ? !is_known : is_gone(database))
            (void)pg_atomic_compare_exchange_u64(&slot.key, &key, tombstone);
    }
    for (TypeSlot& slot : shared->types) {
        uint64 key = pg_atomic_read_u64(&slot.key);
        if (key > tombstone && is_gone(slot.database))
            (void)pg_atomic_compare_exchange_u64(&slot.key, &key, tombstone);
    }
}

void set_up_shared_counters()
{
    ipc::request_shmem("outbox statistics", sizeof(SharedCounters),
                       reinterpret_cast<void**>(&shared), initialize_shmem);
}

} // namespace outbox::stats
