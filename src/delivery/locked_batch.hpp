// Checks a fencing token and locks its lease, before anything is settled. Call inside as_owner().
#pragma once

#include "consumer/batch_store.hpp"

namespace outbox {

// An open batch; this transaction holds the row lock of its lease.
struct LockedBatch {
    Batch batch;           // batch.ids: the messages that are not settled
    IdRanges original_ids; // as claimed
    IdRanges failed_ids;   // failed or blocked since then
    Datum consumer_name;
    int32 consumer;
    bool ordered;
};

// Locks the lease's row, waiting for other sessions, and reads its batch and consumer. A lease that
// has expired but was not taken over is held. Raises token_unknown for a token that does not exist,
// belongs to another tenant or, outside of the relay, to a sink; lease_lost if the batch was
// settled, released or taken over.
LockedBatch lock_batch(int64 token);

// Locks the lease's row, waiting for other sessions, for a token that the caller itself has
// claimed: checks neither tenant nor sink. Raises token_unknown if the row is gone, lease_lost like
// lock_batch().
void lock_held_lease(int64 token);

// Returns the ids as ranges. Raises id_not_in_batch for an id that is not in the batch, or has
// failed or become blocked.
IdRanges checked_ids(const LockedBatch& locked, std::span<const int64> ids);

// Set operations, with the result in the current memory context.
IdRanges subtract_ids(IdRanges set, IdRanges taken);
IdRanges intersect_ids(IdRanges set, IdRanges other);

} // namespace outbox
