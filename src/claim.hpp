// Handing out: a claim finds what a consumer is to do next, and gives it out under one token.
// The engine for SQL callers and for the relay alike.
#pragma once

#include "batch.hpp"

namespace outbox {

struct ClaimRequest {
    Datum consumer; // text
    int batch_size;
    int64 lease;  // microseconds
    Datum worker; // text
    bool settle;  // at once: for a caller whose work is in the same transaction
};

struct Delivery {
    int64 token;
    TimestampTz locked_until;
    int attempts; // with this one
};

// Where messages go.
class MessageSink {
public:
    virtual void put(const Message& message, const Delivery& delivery) = 0;

protected:
    ~MessageSink() = default;
};

// Hands out at most one batch, in the caller's transaction, and returns its size. Call inside
// pg::as_owner().
int claim(const ClaimRequest& request, MessageSink& sink);

} // namespace outbox
