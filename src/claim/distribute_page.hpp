// Reading a page for a consumer with several partitions, and dealing it to them.
#pragma once

#include "consumer/batch_store.hpp"
#include "consumer/read_page.hpp"

namespace outbox {

struct DistributedBatch {
    int32 consumer_partition;
    IdRanges ids;
};

struct DistributedPage {
    PageResult page;
    pg::PallocVector<DistributedBatch> batches; // those of one partition in their order
};

// Moves the cursor. Without order, the page is cut into pieces of the size that was asked for. With
// order, it goes by aggregate, until the first partition that waits for nothing has that many.
DistributedPage read_and_distribute(const Consumer& consumer, std::span<const Lease> leases,
                                    int batch_size, Cursor& cursor);

} // namespace outbox
