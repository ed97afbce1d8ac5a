// A batch whose lease is locked: every settlement begins here. Call inside pg::as_owner().
#pragma once

#include "consumer/batch_store.hpp"

namespace outbox {

// A batch with its lease locked.
struct LockedBatch {
    Batch batch;           // its ids are those that are left to settle
    IdRanges original_ids; // those that it had in the beginning
    IdRanges failed_ids;
    Datum consumer_name;
    int32 consumer;
    bool ordered;
};

// Locks the lease, or refuses the token.
LockedBatch lock_batch(int64 token);

// The same, without a look at the batch: for a token that the caller has claimed.
void lock_held_lease(int64 token);

// The ids as a set, all of them in the batch and none of them out of the worker's hands.
IdRanges checked_ids(const LockedBatch& locked, std::span<const int64> ids);

IdRanges subtract_ids(IdRanges set, IdRanges taken);
IdRanges intersect_ids(IdRanges set, IdRanges other);

} // namespace outbox
