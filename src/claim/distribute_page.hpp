// Reads a page of the log and divides it among the consumer partitions of a consumer.
#pragma once

#include "consumer/batch_store.hpp"
#include "consumer/read_page.hpp"

namespace outbox {

// Messages that become one unassigned batch.
struct DistributedBatch {
    int32 consumer_partition;
    IdRanges ids;
};

// Result of read_and_distribute().
struct DistributedPage {
    PageResult page;
    pg::PallocVector<DistributedBatch> batches; // of one consumer partition: in id order
};

// Reads from the cursor and moves it, in memory only: the caller, which holds the consumer's lock,
// stores batches and cursor. Unordered: contiguous pieces of `batch_size`, because the rows of a
// piece share heap pages. Ordered: by the hash of the aggregate, until a consumer partition without
// an open batch has `batch_size` messages.
DistributedPage read_and_distribute(const Consumer& consumer, std::span<const Lease> leases,
                                    int batch_size, Cursor& cursor);

} // namespace outbox
