// Delivers a stored batch to a receiver.
#pragma once

#include "consumer/batch_store.hpp"
#include "stats/transaction_counters.hpp"

namespace outbox {

// Properties of a delivery beside the columns of the message.
struct Delivery {
    int64 token;
    TimestampTz locked_until;
    int attempts;      // including this one
    bool from_retries; // read from _outbox.retries, not from the log
};

// Takes the messages of a claim: a result set, the relay's copies, or the upcasting before either.
class MessageReceiver {
public:
    // Announces the consumer of the messages. Returns the receiver that takes them: this one, or
    // the next one in the chain if this one leaves the consumer's messages unchanged.
    virtual MessageReceiver& begin(const Consumer&) { return *this; }

    // Takes one message, which stays valid only during the call.
    virtual void receive(const Message& message, const Delivery& delivery) = 0;

    // Returns true to end the batch before batch_size is reached.
    virtual bool is_full() const { return false; }

    // Called after the last message of a batch. Returns false if messages of it have failed: then
    // the batch stays open, and claim_with_upcasting() settles it.
    virtual bool finish() { return true; }

protected:
    ~MessageReceiver() = default;
};

// Returns what the statistics count of a message: stored size of the payload, occurred_at, and the
// slot of the event type, which is assigned in shared memory if the type is new.
stats::EventFacts event_facts_of(const Message& message);

// Returns whether an earlier failed message of the aggregate blocks this one. If so, inserts it
// into _outbox.retries with `failures` as its attempts. The consumer is ordered.
bool add_if_blocked(const Consumer& consumer, int32 consumer_partition, const Message& message,
                    int failures);

// Passes the messages of a batch to receive() and returns their number; 0 settles the lease. Skips
// messages that have left the log. Moves messages that have become blocked since the batch was made
// to _outbox.retries. The caller calls finish().
int deliver_batch(const Consumer& consumer, const Batch& batch, TimestampTz now,
                  TimestampTz locked_until, MessageReceiver& receiver);

// Settles all messages of a batch in the transaction that delivers it (outbox_consume()): marks the
// lease as settled, without checking it, and deletes the rows of retries.
void settle_whole_batch(const Consumer& consumer, const Batch& batch, TimestampTz now);

} // namespace outbox
