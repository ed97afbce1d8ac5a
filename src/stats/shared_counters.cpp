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

constexpr int rate_buckets = 16;    // of some seconds each:
constexpr int64 bucket_seconds = 5; // twelve of them are a minute
constexpr int buckets_in_minute = 12;

using Counter = pg_atomic_uint64;

// Keys of places that are nobody's. Searches go past one that was somebody's, and new keys take it.
constexpr uint64 never_taken = 0;
constexpr uint64 given_back = 1;

struct ConsumerPlace {
    Counter key; // database and consumer
    Counter delivered, failed, dead, bytes;
    Counter latency[latency::bucket_count];
    Counter latency_sum;        // microseconds
    Counter rate[rate_buckets]; // in the upper half which bucket of all time it is
    Counter since;
    TimestampTz last_error_at; // these two under the lock
    char last_error[sizeof(ConsumerCounts::last_error)];

    void clear(TimestampTz now)
    {
        for (Counter* counter : {&delivered, &failed, &dead, &bytes, &latency_sum})
            pg_atomic_write_u64(counter, 0);
        for (Counter& counter : latency)
            pg_atomic_write_u64(&counter, 0);
        pg_atomic_write_u64(&since, static_cast<uint64>(now));
    }
};

struct TypeRow {
    Counter key; // hash of database and name
    Counter enqueued, delivered, failed, dead;
    Counter since;
    Oid database;
    char name[sizeof(TypeCounts::name)];

    void clear(TimestampTz now)
    {
        for (Counter* counter : {&enqueued, &delivered, &failed, &dead})
            pg_atomic_write_u64(counter, 0);
        pg_atomic_write_u64(&since, static_cast<uint64>(now));
    }
};

struct Shared {
    pg_atomic_uint32 overflowed;
    ConsumerPlace consumers[consumer_places];
    TypeRow types[type_places];
};

Shared* shared = nullptr;

void initialize(void* memory)
{
    auto* fresh = static_cast<Shared*>(memory);
    std::memset(static_cast<void*>(fresh), 0, sizeof(Shared));
    const TimestampTz now = GetCurrentTimestamp();
    pg_atomic_init_u32(&fresh->overflowed, 0);
    for (ConsumerPlace& place : fresh->consumers)
        place.clear(now);
    for (TypeRow& row : fresh->types)
        row.clear(now);
}

void add(Counter& counter, uint64 count)
{
    if (count > 0)
        (void)pg_atomic_fetch_add_u64(&counter, static_cast<int64>(count));
}

// Where a key is, or could be: 0 if it has no place and none is left. The first is for all of
// those.
template <typename InsertTarget>
int look_for(InsertTarget* places, int count, uint64 key)
{
    int free = 0;
    int at = static_cast<int>(key % static_cast<uint64>(count - 1));
    for (int tries = 0; tries < count - 1; ++tries, at = (at + 1) % (count - 1)) {
        const uint64 found = pg_atomic_read_u64(&places[at + 1].key);
        if (found == key)
            return at + 1;
        if (free == 0 && (found == never_taken || found == given_back))
            free = at + 1;
        if (found == never_taken)
            break;
    }
    return free;
}

// Finds the place of a key, or gives it one. `fill` writes what belongs to a new one before others
// can find it.
template <typename InsertTarget, typename Fill>
int find_or_take(InsertTarget* places, int count, uint64 key, Fill&& fill)
{
    int at = look_for(places, count, key);
    if (at != 0 && pg_atomic_read_u64(&places[at].key) != key) {
        LWLockAcquire(pg::shared_lock(), LW_EXCLUSIVE);
        at = look_for(places, count, key);
        if (at != 0 && pg_atomic_read_u64(&places[at].key) != key) {
            places[at].clear(GetCurrentTimestamp());
            fill(places[at]);
            pg_write_barrier();
            pg_atomic_write_u64(&places[at].key, key);
        }
        LWLockRelease(pg::shared_lock());
    }
    if (at == 0)
        pg_atomic_write_u32(&shared->overflowed, 1);
    return at;
}

Oid database_of(ConsumerPlace& place)
{
    return static_cast<Oid>(pg_atomic_read_u64(&place.key) >> 32);
}

uint32 rate_bucket_at(TimestampTz now)
{
    return static_cast<uint32>(now / (bucket_seconds * USECS_PER_SEC));
}

void add_to_rate(ConsumerPlace& place, uint64 count, TimestampTz now)
{
    const uint32 bucket = rate_bucket_at(now);
    Counter& counter = place.rate[bucket % rate_buckets];
    uint64 before = pg_atomic_read_u64(&counter);
    uint64 after;
    do {
        const uint64 kept = before >> 32 == bucket ? before & PG_UINT32_MAX : 0;
        after = uint64{bucket} << 32 | Min(kept + count, uint64{PG_UINT32_MAX});
    } while (!pg_atomic_compare_exchange_u64(&counter, &before, after));
}

} // namespace

bool is_on()
{
    return shared != nullptr && settings::statistics;
}

TypePlace place_of(Datum event_type)
{
    // The place of a type never changes.
    struct Known {
        uint64 key;
        TypePlace place;
    };
    static Known known[64]; // direct-mapped
    static char last_name[sizeof(TypeRow::name)];
    static std::size_t last_size = 0; // 0: there is none
    static TypePlace last_place;

    const std::string_view name = pg::to_view(event_type);
    // Events of a type often come together.
    if (name.size() == last_size && std::memcmp(name.data(), last_name, last_size) == 0)
        return last_place;
    const uint64 key = Max(hash_bytes_extended(reinterpret_cast<const unsigned char*>(name.data()),
                                               static_cast<int>(name.size()), MyDatabaseId),
                           given_back + 1);
    Known& cached = known[key % std::size(known)];
    if (cached.key != key)
        cached = {key, static_cast<TypePlace>(
                           find_or_take(shared->types, type_places, key, [&](TypeRow& row) {
                               row.database = MyDatabaseId;
                               row.name[name.copy(row.name, sizeof(row.name) - 1)] = '\0';
                           }))};
    last_size = name.size() <= sizeof(last_name) ? name.copy(last_name, sizeof(last_name)) : 0;
    last_place = cached.place;
    return last_place;
}

int place_of_consumer(int32 consumer)
{
    const uint64 key = uint64{MyDatabaseId} << 32 | static_cast<uint32>(consumer);
    return find_or_take(shared->consumers, consumer_places, key,
                        [](ConsumerPlace& place) { place.last_error_at = 0; });
}

void add(const TypeDelta& delta)
{
    TypeRow& row = shared->types[delta.type];
    add(row.enqueued, delta.enqueued);
    add(row.delivered, delta.delivered);
    add(row.failed, delta.failed);
    add(row.dead, delta.dead);
}

void add(const ConsumerDelta& delta, TimestampTz now)
{
    ConsumerPlace& place = shared->consumers[delta.place];
    add(place.delivered, delta.delivered);
    add(place.failed, delta.failed);
    add(place.dead, delta.dead);
    add(place.bytes, delta.bytes);
    add(place.latency_sum, delta.latency_sum);
    for (std::size_t i = 0; i < latency::bucket_count; ++i)
        add(place.latency[i], delta.latency[i]);
    if (delta.delivered > 0)
        add_to_rate(place, delta.delivered, now);
}

void note_error(int consumer_place, Datum error)
{
    ConsumerPlace& place = shared->consumers[consumer_place];
    const std::string_view message = pg::to_view(error);
    const auto size =
        static_cast<std::size_t>(pg_mbcliplen(message.data(), static_cast<int>(message.size()),
                                              static_cast<int>(sizeof(place.last_error)) - 1));
    LWLockAcquire(pg::shared_lock(), LW_EXCLUSIVE);
    place.last_error_at = GetCurrentTimestamp();
    std::memcpy(place.last_error, message.data(), size);
    place.last_error[size] = '\0';
    LWLockRelease(pg::shared_lock());
}

bool read_consumer_counts(int number, ConsumerCounts& counts)
{
    if (shared == nullptr)
        return false;
    ConsumerPlace& place = shared->consumers[number];
    if (number > 0 && database_of(place) != MyDatabaseId)
        return false;
    counts = {};
    counts.consumer = static_cast<int32>(pg_atomic_read_u64(&place.key) & PG_UINT32_MAX);
    counts.delivered = pg_atomic_read_u64(&place.delivered);
    counts.failed = pg_atomic_read_u64(&place.failed);
    counts.dead = pg_atomic_read_u64(&place.dead);
    counts.bytes = pg_atomic_read_u64(&place.bytes);
    counts.since = static_cast<TimestampTz>(pg_atomic_read_u64(&place.since));
    for (std::size_t i = 0; i < latency::bucket_count; ++i)
        counts.latency[i] = pg_atomic_read_u64(&place.latency[i]);
    counts.latency_sum = pg_atomic_read_u64(&place.latency_sum);
    const uint32 now = rate_bucket_at(GetCurrentTimestamp());
    uint64 recent = 0;
    for (Counter& counter : place.rate) {
        const uint64 value = pg_atomic_read_u64(&counter);
        // The present one is not over yet.
        if (const uint32 age = now - static_cast<uint32>(value >> 32);
            age >= 1 && age <= buckets_in_minute)
            recent += value & PG_UINT32_MAX;
    }
    counts.per_second = static_cast<double>(recent) / (buckets_in_minute * bucket_seconds);
    LWLockAcquire(pg::shared_lock(), LW_SHARED);
    counts.last_error_at = place.last_error_at;
    std::memcpy(counts.last_error, place.last_error, sizeof(counts.last_error));
    LWLockRelease(pg::shared_lock());
    return number > 0 || counts.delivered + counts.failed > 0;
}

bool read_type_counts(int number, TypeCounts& counts)
{
    if (shared == nullptr)
        return false;
    TypeRow& row = shared->types[number];
    if (number > 0 && (pg_atomic_read_u64(&row.key) <= given_back || row.database != MyDatabaseId))
        return false;
    pg_read_barrier();
    std::memcpy(counts.name, row.name, sizeof(counts.name));
    counts.enqueued = pg_atomic_read_u64(&row.enqueued);
    counts.delivered = pg_atomic_read_u64(&row.delivered);
    counts.failed = pg_atomic_read_u64(&row.failed);
    counts.dead = pg_atomic_read_u64(&row.dead);
    counts.since = static_cast<TimestampTz>(pg_atomic_read_u64(&row.since));
    return number > 0 || counts.enqueued + counts.delivered + counts.failed > 0;
}

bool has_overflowed()
{
    return shared != nullptr && pg_atomic_read_u32(&shared->overflowed) != 0;
}

void reset()
{
    if (shared == nullptr)
        return;
    const TimestampTz now = GetCurrentTimestamp();
    for (ConsumerPlace& place : shared->consumers)
        if (database_of(place) == MyDatabaseId)
            place.clear(now);
    for (TypeRow& row : shared->types)
        if (row.database == MyDatabaseId)
            row.clear(now);
}

void give_back_unused(std::span<const int32> consumers)
{
    if (shared == nullptr)
        return;
    const auto is_gone = [](Oid database) {
        return OidIsValid(database) &&
               !SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(database));
    };
    for (ConsumerPlace& place : shared->consumers) {
        uint64 key = pg_atomic_read_u64(&place.key);
        const Oid database = database_of(place);
        const bool is_known =
            std::ranges::find(consumers, static_cast<int32>(key & PG_UINT32_MAX)) !=
            consumers.end();
        if (database == MyDatabaseId ? !is_known : is_gone(database))
            (void)pg_atomic_compare_exchange_u64(&place.key, &key, given_back);
    }
    for (TypeRow& row : shared->types) {
        uint64 key = pg_atomic_read_u64(&row.key);
        if (key > given_back && is_gone(row.database))
            (void)pg_atomic_compare_exchange_u64(&row.key, &key, given_back);
    }
}

void set_up_places()
{
    pg::want_shared("outbox statistics", sizeof(Shared), reinterpret_cast<void**>(&shared),
                    initialize);
}

} // namespace outbox::stats
