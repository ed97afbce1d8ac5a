#include "stats/batch_summaries.hpp"

#include "ipc/shmem.hpp"

extern "C" {
#include "port/atomics.h"
}

#include <cstring>
#include <iterator>

namespace outbox::stats {

namespace {

constexpr int max_summaries = 4096; // about 640 kB of shared memory

struct StoredSummary {
    pg_atomic_uint64 token; // 0 while the summary is being written; checked before and after a read
    Oid database;
    BatchSummary summary;
};

StoredSummary* summaries = nullptr;

// Empties the ring, once per server start.
void initialize_shmem(void* memory)
{
    std::memset(memory, 0, sizeof(StoredSummary) * max_summaries);
}

// Returns the entry of the ring for this token. It may have the summary of another batch.
StoredSummary& slot_of_batch(int64 token)
{
    return summaries[token % max_summaries];
}

} // namespace

void SummaryBuilder::add(const EventFacts& event)
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
    // When the samples are full, every other one is dropped and the stride doubles.
    if (summary_.count++ % static_cast<uint32>(stride_) != 0)
        return;
    if (sample_count_ == 2 * BatchSummary::max_samples) {
        for (int i = 0; i < BatchSummary::max_samples; ++i)
            sample_times_[i] = sample_times_[2 * i];
        sample_count_ = BatchSummary::max_samples;
        stride_ *= 2;
        if ((summary_.count - 1) % static_cast<uint32>(stride_) != 0)
            return;
    }
    sample_times_[sample_count_++] = event.occurred_at;
}

BatchSummary SummaryBuilder::summary() const
{
    BatchSummary summary = summary_;
    for (int i = 0; i < BatchSummary::max_samples && sample_count_ > 0; ++i)
        summary.occurred_at[i] = sample_times_[i * sample_count_ / BatchSummary::max_samples];
    return summary;
}

void store_batch_summary(int64 token, const BatchSummary& summary)
{
    StoredSummary& stored = slot_of_batch(token);
    pg_atomic_write_u64(&stored.token, 0);
    pg_write_barrier();
    stored.database = MyDatabaseId;
    stored.summary = summary;
    pg_write_barrier();
    pg_atomic_write_u64(&stored.token, static_cast<uint64>(token));
}

std::optional<BatchSummary> find_batch_summary(int64 token)
{
    StoredSummary& stored = slot_of_batch(token);
    if (pg_atomic_read_u64(&stored.token) != static_cast<uint64>(token))
        return std::nullopt;
    pg_read_barrier();
    const Oid database = stored.database;
    const BatchSummary summary = stored.summary;
    pg_read_barrier();
    if (pg_atomic_read_u64(&stored.token) != static_cast<uint64>(token) || database != MyDatabaseId)
        return std::nullopt;
    return summary;
}

void set_up_batch_summaries()
{
    ipc::request_shmem("outbox batches", sizeof(StoredSummary) * max_summaries,
                       reinterpret_cast<void**>(&summaries), initialize_shmem);
}

} // namespace outbox::stats
