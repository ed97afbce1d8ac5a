// Handing out a batch that exists.
#pragma once

#include "consumer/batch_store.hpp"
#include "stats/transaction_counters.hpp"

namespace outbox {

struct Delivery {
    int64 token;
    TimestampTz locked_until;
    int attempts;      // with this one
    bool from_retries; // not from the log
};

// Where messages go.
class MessageReceiver {
public:
    // Whose messages will come. Returns where to put them: here, or further on if there is nothing
    // to be done with them here.
    virtual MessageReceiver& begin(const Consumer&) { return *this; }

    virtual void receive(const Message& message, const Delivery& delivery) = 0;

    // No more, although there is room for more messages.
    virtual bool is_full() const { return false; }

    // The batch is whole. False if there is something in it that nobody can use: then it stays
    // open, for whoever claimed it to settle.
    virtual bool finish() { return true; }

protected:
    ~MessageReceiver() = default;
};

// What is counted of a message.
stats::EventFacts event_facts_of(const Message& message);

// Must a message of an ordered consumer wait behind an earlier one? Then it waits from now on.
bool add_if_blocked(const Consumer& consumer, int32 consumer_partition, const Message& message,
                    int failures);

// Passes the messages of a batch on, except those that have to wait meanwhile, and settles the
// lease if that leaves nothing. Returns how many were passed on.
int deliver_batch(const Consumer& consumer, const Batch& batch, TimestampTz now,
                  TimestampTz locked_until, MessageReceiver& receiver);

// What is handed out is settled in the same transaction.
void settle_whole_batch(const Consumer& consumer, const Batch& batch, TimestampTz now);

} // namespace outbox
