#include "stats/batch_summaries.hpp"

#include "ipc/shmem.hpp"

extern "C" {
#include "port/atomics.h"
}

#include <cstring>
#include <iterator>

namespace outbox::stats {

namespace {

constexpr int remembered_batches = 4096;

struct Remembered {
    pg_atomic_uint64 token; // 0 while it is being written
    Oid database;
    Summary summary;
};

Remembered* remembered = nullptr;

void initialize(void* memory)
{
    std::memset(memory, 0, sizeof(Remembered) * remembered_batches);
}

Remembered& place_of_batch(int64 token)
{
    return remembered[token % remembered_batches];
}

} // namespace

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
    Remembered& place = place_of_batch(token);
    pg_atomic_write_u64(&place.token, 0);
    pg_write_barrier();
    place.database = MyDatabaseId;
    place.summary = summary;
    pg_write_barrier();
    pg_atomic_write_u64(&place.token, static_cast<uint64>(token));
}

std::optional<Summary> recall_batch(int64 token)
{
    Remembered& place = place_of_batch(token);
    if (pg_atomic_read_u64(&place.token) != static_cast<uint64>(token))
        return std::nullopt;
    pg_read_barrier();
    const Oid database = place.database;
    const Summary summary = place.summary;
    pg_read_barrier();
    if (pg_atomic_read_u64(&place.token) != static_cast<uint64>(token) || database != MyDatabaseId)
        return std::nullopt;
    return summary;
}

void set_up_batches()
{
    pg::want_shared("outbox batches", sizeof(Remembered) * remembered_batches,
                    reinterpret_cast<void**>(&remembered), initialize);
}

} // namespace outbox::stats
