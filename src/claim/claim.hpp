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
    std::span<const int64> in_hand;
    std::span<const int64> settled;
    ConsumerStateCache& kept;

    // What is claimed may be handed out before it is written down. The consumer's lock is then held
    // until the caller has done so, or given up (pg::release_session_lock()).
    bool may_defer_write;
};

struct ClaimRequest {
    Datum consumer; // text
    int batch_size;
    int64 lease;  // microseconds
    Datum worker; // text
    bool settle;  // at once: for a caller whose work is in the same transaction

    // For the relay, who alone claims from a sink and knows its batches.
    const RelayBatches* relay = nullptr;
};

struct Claimed {
    int count = 0;
    bool more = false; // may be had right now
    bool busy = false; // somebody else had a lock: look again soon

    // Of what was claimed, before anybody got it.
    int failed = 0;
    int64 upcasting_time = 0; // microseconds
};

// Hands out at most one batch, as it was written, in the caller's transaction. Call inside
// pg::as_owner().
Claimed claim(const ClaimRequest& request, MessageReceiver& sink);

} // namespace outbox
