#include "claim/distribute_page.hpp"

namespace outbox {

namespace {

// Limits the memory for ids of a page.
constexpr int64 max_rows_per_page = 20000;

// Batches per consumer partition of an unordered consumer: workers take them while one of them
// reads the next page.
constexpr int64 max_batches_ahead = 4;

// Largest batch for a consumer partition that has an open batch. It is split when a worker takes
// it, and the rest is written again, so it must not be large.
constexpr int64 max_waiting_batch = 1000;

// The ids of this page for one consumer partition.
struct PartitionShare {
    pg::PallocVector<IdRange> ids;
    int64 size;
    bool has_no_open_batch;
};

// Returns an array of empty shares in the current memory context, one per consumer partition.
PartitionShare* open_partition_shares(const Consumer& consumer, std::span<const Lease> leases)
{
    auto* partition_shares = static_cast<PartitionShare*>(
        palloc0(sizeof(PartitionShare) * static_cast<std::size_t>(consumer.consumer_partitions)));
    for (int32 i = 0; i < consumer.consumer_partitions; ++i)
        partition_shares[i].has_no_open_batch = true;
    for (const Lease& lease : leases)
        if (lease.consumer_partition < consumer.consumer_partitions)
            partition_shares[lease.consumer_partition].has_no_open_batch = false;
    return partition_shares;
}

} // namespace

DistributedPage read_and_distribute(const Consumer& consumer, std::span<const Lease> leases,
                                    int batch_size, Cursor& cursor)
{
    DistributedPage distributed;
    PartitionShare* partition_shares = open_partition_shares(consumer, leases);
    const auto close_share = [&](int64 consumer_partition) {
        distributed.batches.push({static_cast<int32>(consumer_partition),
                                  partition_shares[consumer_partition].ids.view()});
        partition_shares[consumer_partition].ids = {};
        partition_shares[consumer_partition].size = 0;
    };
    const int64 size = batch_size;
    const int64 max_size = consumer.ordered ? Max(size, max_waiting_batch) : size;
    int64 taken = 0;
    int64 limit = consumer.ordered ? max_rows_per_page
                                   : Min(size * consumer.consumer_partitions * max_batches_ahead,
                                         max_rows_per_page);
    distributed.page =
        read_page(cursor, consumer.filter, limit, max_rows_examined, [&](const Message& message) {
            const int64 consumer_partition = consumer.ordered
                                                 ? consumer.consumer_partition_of(message)
                                                 : taken / size % consumer.consumer_partitions;
            PartitionShare& share = partition_shares[consumer_partition];
            append_id(share.ids, message.id());
            ++share.size;
            ++taken;
            if (consumer.ordered && share.has_no_open_batch && share.size == size)
                limit = taken;
            if (share.size == max_size)
                close_share(consumer_partition);
            return true;
        });
    for (int32 consumer_partition = 0; consumer_partition < consumer.consumer_partitions;
         ++consumer_partition)
        if (partition_shares[consumer_partition].size > 0)
            close_share(consumer_partition);
    return distributed;
}

} // namespace outbox
