// What a worker says about its batch: done, failed, still at it, take it back. Each of these locks
// the lease first and refuses a token whose lease is lost, so that a worker that was replaced
// cannot settle what another is working on. Call inside pg::as_owner().
#pragma once

#include "consumer/batch_store.hpp"

namespace outbox {

struct Failure {
    Datum error;                   // text, already cut
    std::optional<int64> retry_in; // microseconds; otherwise what the policy says
    bool dead;                     // do not try again
    bool counts_as_attempt = true; // as an attempt
};

// Who counts what was delivered, for the statistics?
enum class StatsBy { callee, caller };

// Returns how many were settled by this call. Without ids: the whole rest of the batch.
int ack_messages(int64 token, const std::span<const int64>* ids,
                 StatsBy stats_by = StatsBy::callee);

// Settles whole batches of messages from the log, which the caller has claimed and of which nothing
// has failed. Refuses all of them if a lease is lost. The caller counts them.
void ack_whole_batches(std::span<const int64> tokens);

struct FailResult {
    int count;
    int dead;         // of these; the others wait for another attempt
    IdRanges blocked; // what waits behind them from now on, and is no longer in the batch
};

// One failure for all of them, or one for each, with the ids in ascending order.
FailResult fail_messages(int64 token, std::span<const int64> ids,
                         std::span<const Failure> failures);

// For a worker that has several batches of an ordered consumer: some of these messages wait behind
// one that has failed in another batch. They leave this one; returns which.
IdRanges block_behind(int64 token, std::span<const int64> ids);

// Returns until when the batch now belongs to the worker. `lease` is in microseconds; without it,
// as long as the claim said.
TimestampTz heartbeat(int64 token, std::optional<int64> lease);

// Hands the rest of the batch back, without counting an attempt. Returns how many those are.
int release_batch(int64 token);

} // namespace outbox
