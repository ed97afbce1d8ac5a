#include "stats.hpp"

#include "pg/growing.hpp"
#include "pg/guc.hpp"
#include "pg/shared.hpp"
#include "pg/values.hpp"

extern "C" {
#include "common/hashfn.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
}

#include <cstring>

namespace outbox::stats {

namespace {

constexpr int remembered_batches = 4096;
constexpr int rate_buckets = 16;    // of some seconds each:
constexpr int64 bucket_seconds = 5; // twelve of them are a minute
constexpr int buckets_in_minute = 12;

using Counter = pg_atomic_uint64;

// A key of 0 is a free place.
struct ConsumerPlace {
    Counter key; // database and consumer
    Counter delivered, failed, dead, bytes;
    Counter latency[latency::bucket_count];
    Counter rate[rate_buckets]; // in the upper half which bucket of all time it is
    Counter since;
    TimestampTz last_error_at; // these two under the lock
    char last_error[sizeof(ConsumerCounts::last_error)];
};

struct TypeRow {
    Counter key; // hash of database and name
    Counter enqueued, delivered, failed, dead;
    Counter since;
    Oid database;
    char name[sizeof(TypeCounts::name)];
};

struct Remembered {
    Counter token; // 0 while it is being written
    Oid database;
    Summary summary;
};

struct Shared {
    pg_atomic_uint32 overflowed;
    ConsumerPlace consumers[consumer_places];
    TypeRow types[type_places];
    Remembered batches[remembered_batches];
};

Shared* shared = nullptr;

void initialize(void* memory)
{
    auto* fresh = static_cast<Shared*>(memory);
    std::memset(static_cast<void*>(fresh), 0, sizeof(Shared));
    const auto now = static_cast<uint64>(GetCurrentTimestamp());
    pg_atomic_init_u32(&fresh->overflowed, 0);
    for (ConsumerPlace& place : fresh->consumers)
        pg_atomic_init_u64(&place.since, now);
    for (TypeRow& row : fresh->types)
        pg_atomic_init_u64(&row.since, now);
}

void add(Counter& counter, uint64 count)
{
    if (count > 0)
        (void)pg_atomic_fetch_add_u64(&counter, static_cast<int64>(count));
}

// ---- places

// Finds the place of a key, or gives it one: 0 if none is left. `fill` writes what belongs to a new
// one before others can find it.
template <typename Place, typename Fill>
int find_or_take(Place* places, int count, uint64 key, Fill&& fill)
{
    // The first is for all that have none.
    const auto look = [&] {
        int at = static_cast<int>(key % static_cast<uint64>(count - 1));
        for (int tries = 0; tries < count - 1; ++tries, at = (at + 1) % (count - 1)) {
            const uint64 found = pg_atomic_read_u64(&places[at + 1].key);
            if (found == key || found == 0)
                return at + 1;
        }
        return 0;
    };
    int at = look();
    if (at == 0 || pg_atomic_read_u64(&places[at].key) == key)
        return at;
    LWLockAcquire(pg::shared_lock(), LW_EXCLUSIVE);
    at = look();
    if (at != 0 && pg_atomic_read_u64(&places[at].key) == 0) {
        fill(places[at]);
        pg_atomic_write_u64(&places[at].since, static_cast<uint64>(GetCurrentTimestamp()));
        pg_write_barrier();
        pg_atomic_write_u64(&places[at].key, key);
    }
    LWLockRelease(pg::shared_lock());
    return at;
}

uint64 consumer_key(int32 consumer)
{
    return uint64{MyDatabaseId} << 32 | static_cast<uint32>(consumer);
}

int place_of_consumer(int32 consumer)
{
    const int at = find_or_take(shared->consumers, consumer_places, consumer_key(consumer),
                                [](ConsumerPlace&) {});
    if (at == 0)
        pg_atomic_write_u32(&shared->overflowed, 1);
    return at;
}

// ---- what this transaction has to add

struct TypeDelta {
    TypePlace type;
    uint64 enqueued, delivered, failed, dead;
};

struct ConsumerDelta {
    int place;
    uint64 delivered, failed, dead, bytes;
    uint32 latency[latency::bucket_count];
};

// Of a transaction or subtransaction. In memory of the transaction's.
struct Level {
    Level* outer;
    int nesting;
    pg::Growing<TypeDelta> types;
    pg::Growing<ConsumerDelta> consumers;
};

Level* innermost = nullptr;

Level& level()
{
    const int nesting = GetCurrentTransactionNestLevel();
    if (innermost == nullptr || innermost->nesting < nesting) {
        auto* fresh =
            static_cast<Level*>(MemoryContextAllocZero(TopTransactionContext, sizeof(Level)));
        fresh->outer = innermost;
        fresh->nesting = nesting;
        innermost = fresh;
    }
    return *innermost;
}

TypeDelta& delta_of(Level& level, TypePlace type)
{
    for (TypeDelta& delta : level.types)
        if (delta.type == type)
            return delta;
    const MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);
    level.types.push({type, 0, 0, 0, 0});
    MemoryContextSwitchTo(before);
    return level.types[level.types.size() - 1];
}

ConsumerDelta& delta_of_place(Level& level, int place)
{
    for (ConsumerDelta& delta : level.consumers)
        if (delta.place == place)
            return delta;
    const MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);
    ConsumerDelta fresh = {};
    fresh.place = place;
    level.consumers.push(fresh);
    MemoryContextSwitchTo(before);
    return level.consumers[level.consumers.size() - 1];
}

ConsumerDelta& delta_of_consumer(int32 consumer)
{
    return delta_of_place(level(), place_of_consumer(consumer));
}

void merge(const Level& from, Level& into)
{
    for (const TypeDelta& delta : from.types) {
        TypeDelta& sum = delta_of(into, delta.type);
        sum.enqueued += delta.enqueued;
        sum.delivered += delta.delivered;
        sum.failed += delta.failed;
        sum.dead += delta.dead;
    }
    for (const ConsumerDelta& delta : from.consumers) {
        ConsumerDelta& sum = delta_of_place(into, delta.place);
        sum.delivered += delta.delivered;
        sum.failed += delta.failed;
        sum.dead += delta.dead;
        sum.bytes += delta.bytes;
        for (std::size_t i = 0; i < latency::bucket_count; ++i)
            sum.latency[i] += delta.latency[i];
    }
}

// ---- and adding it. From here on nothing may fail.

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

void add_to_shared(const Level& all)
{
    for (const TypeDelta& delta : all.types) {
        TypeRow& row = shared->types[delta.type];
        add(row.enqueued, delta.enqueued);
        add(row.delivered, delta.delivered);
        add(row.failed, delta.failed);
        add(row.dead, delta.dead);
    }
    const TimestampTz now = all.consumers.empty() ? 0 : GetCurrentTimestamp();
    for (const ConsumerDelta& delta : all.consumers) {
        ConsumerPlace& place = shared->consumers[delta.place];
        add(place.delivered, delta.delivered);
        add(place.failed, delta.failed);
        add(place.dead, delta.dead);
        add(place.bytes, delta.bytes);
        for (std::size_t i = 0; i < latency::bucket_count; ++i)
            add(place.latency[i], delta.latency[i]);
        if (delta.delivered > 0)
            add_to_rate(place, delta.delivered, now);
    }
}

// A prepared transaction counts when it is prepared: who commits it knows nothing of what it did.
void at_end(XactEvent event, void*)
{
    const bool commits = event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE;
    if (!commits && event != XACT_EVENT_ABORT)
        return;
    if (commits && innermost != nullptr)
        add_to_shared(*innermost);
    innermost = nullptr;
}

void at_subtransaction_end(SubXactEvent event, SubTransactionId, SubTransactionId, void*)
{
    if (innermost == nullptr || innermost->nesting < GetCurrentTransactionNestLevel())
        return;
    if (event == SUBXACT_EVENT_ABORT_SUB) {
        innermost = innermost->outer;
    } else if (event == SUBXACT_EVENT_PRE_COMMIT_SUB) {
        Level* ended = innermost;
        if (ended->outer == nullptr || ended->outer->nesting < ended->nesting - 1) {
            --ended->nesting;
            return;
        }
        innermost = ended->outer;
        merge(*ended, *innermost);
    }
}

} // namespace

bool is_on()
{
    return shared != nullptr && settings::statistics;
}

TypePlace place_of(Datum event_type)
{
    // Direct-mapped; the place of a type never changes.
    struct Known {
        uint64 key;
        TypePlace place;
    };
    static Known known[64];

    const std::string_view name = pg::to_view(event_type);
    const uint64 key = Max(hash_bytes_extended(reinterpret_cast<const unsigned char*>(name.data()),
                                               static_cast<int>(name.size()), MyDatabaseId),
                           uint64{1});
    Known& cached = known[key % std::size(known)];
    if (cached.key == key)
        return cached.place;
    const int at = find_or_take(shared->types, type_places, key, [&](TypeRow& row) {
        row.database = MyDatabaseId;
        const std::size_t size = Min(name.size(), sizeof(row.name) - 1);
        std::memcpy(row.name, name.data(), size);
        row.name[size] = '\0';
    });
    if (at == 0)
        pg_atomic_write_u32(&shared->overflowed, 1);
    cached = {key, static_cast<TypePlace>(at)};
    return cached.place;
}

void count_enqueued(Datum event_type, int count)
{
    delta_of(level(), place_of(event_type)).enqueued += static_cast<uint64>(count);
}

void count_delivered(int32 consumer, const Facts& event, TimestampTz now)
{
    ConsumerDelta& delta = delta_of_consumer(consumer);
    ++delta.delivered;
    delta.bytes += event.bytes;
    ++delta.latency[latency::bucket_of(now - event.occurred_at)];
    ++delta_of(level(), event.type).delivered;
}

void count_failed(int32 consumer, Datum event_type, bool dead, Datum error)
{
    ConsumerDelta& delta = delta_of_consumer(consumer);
    TypeDelta& type = delta_of(level(), place_of(event_type));
    ++delta.failed;
    ++type.failed;
    delta.dead += dead;
    type.dead += dead;

    ConsumerPlace& place = shared->consumers[delta.place];
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

void Collector::add(const Facts& event)
{
    auto* type = summary_.types;
    while (type != std::end(summary_.types) - 1 && type->count > 0 && type->type != event.type)
        ++type;
    if (type->count > 0 && type->type != event.type)
        type->type = 0;
    else
        type->type = event.type;
    ++type->count;
    summary_.bytes += event.bytes;
    // Whenever there is no room for more samples, every other one goes.
    if (summary_.count++ % static_cast<uint32>(stride_) != 0)
        return;
    if (taken_ == 2 * Summary::samples) {
        for (int i = 0; i < Summary::samples; ++i)
            taken_at_[i] = taken_at_[2 * i];
        taken_ = Summary::samples;
        stride_ *= 2;
        if ((summary_.count - 1) % static_cast<uint32>(stride_) != 0)
            return;
    }
    taken_at_[taken_++] = event.occurred_at;
}

Summary Collector::summary() const
{
    Summary summary = summary_;
    for (int i = 0; i < Summary::samples && taken_ > 0; ++i)
        summary.occurred_at[i] = taken_at_[i * taken_ / Summary::samples];
    return summary;
}

void remember_batch(int64 token, const Summary& summary)
{
    Remembered& place = shared->batches[token % remembered_batches];
    pg_atomic_write_u64(&place.token, 0);
    pg_write_barrier();
    place.database = MyDatabaseId;
    place.summary = summary;
    pg_write_barrier();
    pg_atomic_write_u64(&place.token, static_cast<uint64>(token));
}

bool count_batch(int32 consumer, int64 token, TimestampTz now)
{
    Remembered& place = shared->batches[token % remembered_batches];
    if (pg_atomic_read_u64(&place.token) != static_cast<uint64>(token))
        return false;
    pg_read_barrier();
    const Oid database = place.database;
    const Summary summary = place.summary;
    pg_read_barrier();
    if (pg_atomic_read_u64(&place.token) != static_cast<uint64>(token) || database != MyDatabaseId)
        return false;

    ConsumerDelta& delta = delta_of_consumer(consumer);
    delta.delivered += summary.count;
    delta.bytes += summary.bytes;
    for (uint32 i = 0; i < Summary::samples; ++i) {
        // Their weights add up to the whole.
        const uint32 weight =
            summary.count * (i + 1) / Summary::samples - summary.count * i / Summary::samples;
        delta.latency[latency::bucket_of(now - summary.occurred_at[i])] += weight;
    }
    for (const auto& type : summary.types)
        if (type.count > 0)
            delta_of(level(), type.type).delivered += type.count;
    return true;
}

bool read_consumer_counts(int number, ConsumerCounts& counts)
{
    if (shared == nullptr)
        return false;
    ConsumerPlace& place = shared->consumers[number];
    const uint64 key = pg_atomic_read_u64(&place.key);
    if (number > 0 && key >> 32 != MyDatabaseId)
        return false;
    counts = {};
    counts.consumer = static_cast<int32>(key & PG_UINT32_MAX);
    counts.delivered = pg_atomic_read_u64(&place.delivered);
    counts.failed = pg_atomic_read_u64(&place.failed);
    counts.dead = pg_atomic_read_u64(&place.dead);
    counts.bytes = pg_atomic_read_u64(&place.bytes);
    counts.since = static_cast<TimestampTz>(pg_atomic_read_u64(&place.since));
    for (std::size_t i = 0; i < latency::bucket_count; ++i)
        counts.latency[i] = pg_atomic_read_u64(&place.latency[i]);
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
    if (number > 0 && (pg_atomic_read_u64(&row.key) == 0 || row.database != MyDatabaseId))
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
    const auto now = static_cast<uint64>(GetCurrentTimestamp());
    for (ConsumerPlace& place : shared->consumers) {
        if (pg_atomic_read_u64(&place.key) >> 32 != MyDatabaseId)
            continue;
        for (Counter* counter : {&place.delivered, &place.failed, &place.dead, &place.bytes})
            pg_atomic_write_u64(counter, 0);
        for (Counter& counter : place.latency)
            pg_atomic_write_u64(&counter, 0);
        pg_atomic_write_u64(&place.since, now);
    }
    for (TypeRow& row : shared->types) {
        if (row.database != MyDatabaseId)
            continue;
        for (Counter* counter : {&row.enqueued, &row.delivered, &row.failed, &row.dead})
            pg_atomic_write_u64(counter, 0);
        pg_atomic_write_u64(&row.since, now);
    }
}

void set_up()
{
    pg::want_shared("outbox statistics", sizeof(Shared), reinterpret_cast<void**>(&shared),
                    initialize);
    RegisterXactCallback(at_end, nullptr);
    RegisterSubXactCallback(at_subtransaction_end, nullptr);
}

} // namespace outbox::stats
