// Handing out: a claim finds what a consumer is to do next, and gives it out under one token.
// The engine for SQL callers and for the relay alike.
#pragma once

#include "hand_out.hpp"

namespace outbox {

struct ClaimRequest {
    Datum consumer; // text
    int batch_size;
    int64 lease;  // microseconds
    Datum worker; // text
    bool settle;  // at once: for a caller whose work is in the same transaction

    // For the relay, who alone claims from a sink: the batches that it has in hand. Whatever else
    // is open was left behind, by a relay that is gone or by this one.
    std::optional<std::span<const int64>> in_hand = std::nullopt;
};

// Hands out at most one batch, in the caller's transaction, and returns its size. Call inside
// pg::as_owner().
int claim(const ClaimRequest& request, MessageSink& sink);

} // namespace outbox
