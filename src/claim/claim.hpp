// Handing out: a claim finds what a consumer is to do next, and gives it out under one token.
// The engine for SQL callers and for the relay alike.
#pragma once

#include "claim/consumer_state_cache.hpp"
#include "delivery/deliver_batch.hpp"

namespace outbox {

// Tokens in ascending order. What is in neither list, and open, was left behind by a relay that is
// gone, or by this one.
struct RelayBatches {
    int32 consumer;
    std::span<const int64> claimed_tokens;
    std::span<const int64> settled_tokens;
    ConsumerStateCache& state_cache;

    // What is claimed may be handed out before it is written down. The consumer's lock is then held
    // until the caller has done so, or given up (pg::release_session_lock()).
    bool may_defer_write;
};

struct ClaimRequest {
    Datum consumer; // text
    int batch_size;
    int64 lease;         // microseconds
    Datum worker;        // text
    bool settle_at_once; // at once: for a caller whose work is in the same transaction

    // For the relay, who alone claims from a sink and knows its batches.
    const RelayBatches* relay = nullptr;
};

struct ClaimResult {
    int count = 0;
    bool has_more = false;  // may be had right now
    bool lock_busy = false; // somebody else had a lock: look again soon

    // Of what was claimed, before anybody got it.
    int failed = 0;
    int64 upcasting_us = 0; // microseconds
};

// Hands out at most one batch, as it was written, in the caller's transaction. Call inside
// pg::as_owner().
ClaimResult claim_batch(const ClaimRequest& request, MessageReceiver& receiver);

} // namespace outbox
