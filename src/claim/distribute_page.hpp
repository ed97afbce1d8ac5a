// Reading a page for a consumer with several partitions, and dealing it to them.
#pragma once

#include "consumer/batch_store.hpp"
#include "consumer/read_page.hpp"

namespace outbox {

struct DealtBatch {
    int32 partition;
    IdRanges ids;
};

struct Dealt {
    Page page;
    pg::Growing<DealtBatch> batches; // those of one partition in their order
};

// Moves the cursor. Without order, the page is cut into pieces of the size that was asked for. With
// order, it goes by aggregate, until the first partition that waits for nothing has that many.
Dealt read_and_deal(const Consumer& consumer, std::span<const Lease> leases, int batch_size,
                    Cursor& cursor);

} // namespace outbox
