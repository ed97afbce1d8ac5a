// Copies the messages of a claim into sink::Event objects: plain C++ memory, UTF-8. They outlive
// the transaction.
#pragma once

#include "delivery/deliver_batch.hpp"
#include "sink/dispatch/event_pool.hpp"

namespace outbox {

// The receiver of the relay's claims.
class SinkEventBuilder final : public MessageReceiver {
public:
    // `max_bytes` ends the batch, but not before its first message. `metadata_keys` are the keys of
    // the metadata that become attributes. `expected` is the number of events to reserve space for;
    // events are reused from `event_pool`.
    SinkEventBuilder(std::size_t max_bytes, const std::vector<std::string>& metadata_keys,
                     std::size_t expected, sink::EventPool& event_pool)
        : max_bytes_(max_bytes), metadata_keys_(metadata_keys), event_pool_(event_pool)
    {
        events_.reserve(expected);
    }

    // Call in the transaction, at the start of a claim: discards events, and makes a memory context
    // in the current one.
    void reset();

    // Copies one message into an event of the pool. Raises server errors, and throws if memory is
    // missing.
    void receive(const Message& message, const Delivery& delivery) override;
    bool is_full() const override { return bytes_ >= max_bytes_; }

    // The events of the claim, in id order, for the dispatcher to take.
    std::vector<std::unique_ptr<sink::Event>>& events() { return events_; }

    // Returns whether the batch of the claim consists of retries.
    bool is_from_retries() const { return from_retries_; }

    // Returns the position up to which the WAL must be flushed before any of the events is sent.
    XLogRecPtr flush_needed() const { return flush_needed_; }

private:
    std::size_t max_bytes_;
    const std::vector<std::string>& metadata_keys_;
    std::size_t bytes_ = 0;
    sink::EventPool& event_pool_;
    std::vector<std::unique_ptr<sink::Event>> events_;
    bool from_retries_ = false;
    XLogRecPtr flush_needed_ = InvalidXLogRecPtr;
    Xid last_xid_ = 0;                // xid of the previous message, whose commit position is known
    MemoryContext scratch_ = nullptr; // reset after each message
};

} // namespace outbox
