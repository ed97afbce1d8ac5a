// Settling the messages of a batch, by its fencing token. Each function locks the row of the lease
// first and raises lease_lost or token_unknown unless the lease is held, so that a worker whose
// batch was taken over cannot settle messages that another worker has. Call inside as_owner().
#pragma once

#include "consumer/batch_store.hpp"

namespace outbox {

// How a message failed, and when it is tried again.
struct Failure {
    Datum error;                   // text of limited length
    std::optional<int64> retry_in; // microseconds; nullopt: by the consumer's retry policy
    bool dead;                     // moves to the dead letters at once
    bool counts_as_attempt = true;
};

// Whether ack_messages() or its caller adds the messages to the statistics.
enum class StatsBy { callee, caller };

// Settles messages as delivered; without ids, the rest of the batch. Returns how many this call has
// settled: ids that were acked before do not count. Deletes their rows of _outbox.retries, settles
// the lease if no message is left, and raises id_not_in_batch like checked_ids().
int ack_messages(int64 token, const std::span<const int64>* ids,
                 StatsBy stats_by = StatsBy::callee);

// Settles whole batches from the log of which no message has failed, without reading the batches.
// Raises an error, and settles none, if one of the leases is lost. The caller counts the messages.
void ack_whole_batches(std::span<const int64> tokens);

// Outcome of fail_messages().
struct FailResult {
    int count;        // failed messages
    int dead;         // of `count`; the others are retries now
    IdRanges blocked; // messages behind them in the batch; they have left it and are retries now
};

// Moves messages to the retries or the dead letters, and for an ordered consumer blocks later
// messages of their aggregates. `failures` has one element for all ids, or one for each id; then
// the ids must ascend. Raises id_not_in_batch for an id that is not in the batch, was acked, or has
// left the log. Counts the failures, logs dead letters and wakes claims at commit.
FailResult fail_messages(int64 token, std::span<const int64> ids,
                         std::span<const Failure> failures);

// Moves those of the messages to the retries that a message of another batch blocks, and returns
// them; settles the lease if no message is left. For the relay, which has several open batches of
// an ordered consumer. Raises id_not_in_batch like checked_ids().
IdRanges block_behind(int64 token, std::span<const int64> ids);

// Sets the lease's end to now + `lease`, even if that is earlier, and returns it. `lease` is in
// microseconds; std::nullopt: as long as in the claim.
TimestampTz heartbeat(int64 token, std::optional<int64> lease);

// Sets locked_until = '-infinity', so that the next claim takes the batch over without counting an
// attempt, and wakes claims at commit. Returns the number of messages left in the batch.
int release_batch(int64 token);

} // namespace outbox
