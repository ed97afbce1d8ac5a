// A claim finds the next batch of a consumer and delivers it under one fencing token: the engine
// behind outbox_claim(), outbox_consume() and the relay.
#pragma once

#include "claim/consumer_state_cache.hpp"
#include "delivery/deliver_batch.hpp"

namespace outbox {

// Batches that this relay knows, sorted by token. An open batch in neither list belongs to a
// crashed relay, or was lost by this one, and is taken over at once.
struct RelayBatches {
    int32 consumer;
    std::span<const int64> claimed_tokens;
    std::span<const int64> settled_tokens;
    ConsumerStateCache& state_cache;

    // Whether the claim may deliver a batch before its rows are written (DeferredBatch). The
    // consumer's lock is then held as a session lock until the caller has written them, or given
    // up, and calls release_session_lock().
    bool may_defer_write;
};

// Arguments of a claim.
struct ClaimRequest {
    Datum consumer; // its name, text
    int batch_size;
    int64 lease;         // microseconds
    Datum worker;        // text
    bool settle_at_once; // for a caller whose work is in the same transaction (outbox_consume())

    // Set by the relay, which alone claims from sinks and knows its batches.
    const RelayBatches* relay = nullptr;
};

// Outcome of a claim.
struct ClaimResult {
    int count = 0;          // messages delivered to the receiver
    bool has_more = false;  // another claim may find messages right now
    bool lock_busy = false; // another session held a lock: claim again soon

    int failed = 0;         // messages whose upcaster failed
    int64 upcasting_us = 0; // microseconds that upcasters took
};

// Delivers at most one batch to the receiver, in the caller's transaction and without upcasting.
// Writes _outbox.batches, leases, retries, dead_letters and tenant_turns. Takes the consumer's
// lock, waiting up to 100 ms (the relay: not at all), and keeps it to the end of the transaction if
// it has added a batch or moved the cursor. Raises undefined_object for an unknown consumer, and an
// error for a sink if the caller is not the relay. Call inside as_owner().
ClaimResult claim_batch(const ClaimRequest& request, MessageReceiver& receiver);

} // namespace outbox
