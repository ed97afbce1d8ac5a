// Messages of a claim on their way out of the server: copies in plain C++, in UTF-8, that outlive
// the transaction.
#pragma once

#include "delivery/deliver_batch.hpp"
#include "sink/dispatch/event_pool.hpp"

namespace outbox {

class SinkEventBuilder final : public MessageReceiver {
public:
    // No more than so many bytes, but always one message. `metadata` names the keys that travel as
    // attributes. There is room for `expected` of them from the beginning, and they are made from
    // spare ones.
    SinkEventBuilder(std::size_t max_bytes, const std::vector<std::string>& metadata_keys,
                     std::size_t expected, sink::EventPool& event_pool)
        : max_bytes_(max_bytes), metadata_keys_(metadata_keys), event_pool_(event_pool)
    {
        events_.reserve(expected);
    }

    // Forgets what it has, and works in memory of the current transaction from now on.
    void reset();

    void receive(const Message& message, const Delivery& delivery) override;
    bool is_full() const override { return bytes_ >= max_bytes_; }

    std::vector<std::unique_ptr<sink::Event>>& events() { return events_; }

    // A claim hands out one batch: is it of messages that have failed before?
    bool is_from_retries() const { return from_retries_; }

    // Up to where the WAL must be flushed before any of these may be seen outside of the server.
    XLogRecPtr flush_needed() const { return flush_needed_; }

private:
    std::size_t max_bytes_;
    const std::vector<std::string>& metadata_keys_;
    std::size_t bytes_ = 0;
    sink::EventPool& event_pool_;
    std::vector<std::unique_ptr<sink::Event>> events_;
    bool from_retries_ = false;
    XLogRecPtr flush_needed_ = InvalidXLogRecPtr;
    Xid last_xid_ = 0;                // that was asked about
    MemoryContext scratch_ = nullptr; // for one message
};

} // namespace outbox
