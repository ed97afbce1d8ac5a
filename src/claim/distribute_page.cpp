#include "claim/distribute_page.hpp"

namespace outbox {

namespace {

// More than this is not worth the memory.
constexpr int64 max_page = 20000;

// How many batches for each partition of a consumer without order: while somebody reads the next
// page, the others have something to pick up.
constexpr int64 rounds_ahead = 4;

// The largest batch for a partition whose turn is not yet: it will be cut.
constexpr int64 max_waiting_batch = 1000;

// What a partition gets.
struct PartitionShare {
    pg::PallocVector<IdRange> ids;
    int64 size;
    bool has_nothing_else;
};

PartitionShare* open_partition_shares(const Consumer& consumer, std::span<const Lease> leases)
{
    auto* partition_shares = static_cast<PartitionShare*>(
        palloc0(sizeof(PartitionShare) * static_cast<std::size_t>(consumer.partitions)));
    for (int32 i = 0; i < consumer.partitions; ++i)
        partition_shares[i].has_nothing_else = true;
    for (const Lease& lease : leases)
        if (lease.partition < consumer.partitions)
            partition_shares[lease.partition].has_nothing_else = false;
    return partition_shares;
}

} // namespace

DistributedPage read_and_distribute(const Consumer& consumer, std::span<const Lease> leases,
                                    int batch_size, Cursor& cursor)
{
    DistributedPage is_unassigned;
    PartitionShare* partition_shares = open_partition_shares(consumer, leases);
    const auto close_share = [&](int64 place) {
        is_unassigned.batches.push({static_cast<int32>(place), partition_shares[place].ids.view()});
        partition_shares[place].ids = {};
        partition_shares[place].size = 0;
    };
    const int64 size = batch_size;
    const int64 largest = consumer.ordered ? Max(size, max_waiting_batch) : size;
    int64 taken = 0;
    int64 limit =
        consumer.ordered ? max_page : Min(size * consumer.partitions * rounds_ahead, max_page);
    is_unassigned.page =
        read_page(cursor, consumer.filter, limit, reading_budget, [&](const Message& message) {
            const int64 place = consumer.ordered ? consumer.partition_of(message)
                                                 : taken / size % consumer.partitions;
            PartitionShare& hand = partition_shares[place];
            append_to(hand.ids, message.id());
            ++hand.size;
            ++taken;
            if (consumer.ordered && hand.has_nothing_else && hand.size == size)
                limit = taken;
            if (hand.size == largest)
                close_share(place);
            return true;
        });
    for (int32 place = 0; place < consumer.partitions; ++place)
        if (partition_shares[place].size > 0)
            close_share(place);
    return is_unassigned;
}

} // namespace outbox
