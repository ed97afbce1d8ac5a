// Upcasting: messages are delivered in the payload version that their consumer asks for. The log,
// retries and dead letters keep the version that was enqueued.
#pragma once

#include "claim/claim.hpp"
#include "consumer/aggregate_set.hpp"
#include "delivery/settle.hpp"

namespace outbox {

struct Upcaster;

// Upcasts messages and forwards them to another receiver. Messages are queued, because upcasters
// run in subtransactions, which cost more than most upcasters: one subtransaction handles many
// messages.
class UpcastingReceiver final : public MessageReceiver {
public:
    // `limit`: microseconds of upcasting after which the remaining messages of the claim fail
    // untried. They are retried, without an attempt being counted.
    explicit UpcastingReceiver(MessageReceiver& receiver, std::optional<int64> limit = std::nullopt)
        : receiver_(receiver), time_limit_(limit), claim_memory_(CurrentMemoryContext)
    {}

    // Returns the wrapped receiver if there is nothing to upcast for this consumer. Refreshes the
    // cache of upcasters. Raises object_not_in_prerequisite_state if called from an upcaster.
    MessageReceiver& begin(const Consumer& consumer) override;

    // Forwards the message if it need not be upcast and none is queued. Otherwise queues a copy,
    // and handles the queue when it is full.
    void receive(const Message& message, const Delivery& delivery) override;

    bool is_full() const override { return is_time_exhausted_ || receiver_.is_full(); }

    // Handles the rest of the queue. Returns false if messages have failed: then call
    // settle_failures().
    bool finish() override;

    // Moves the messages that could not be upcast to the retries or the dead letters by
    // fail_messages(), and forwards messages that were held back but are not blocked by them. Call
    // when the batch and its lease are inserted.
    void settle_failures();

    int64 token() const { return token_; }
    int forwarded() const { return forwarded_; }
    int failed() const { return static_cast<int>(failed_ids_.size()); }
    bool is_time_exhausted() const { return is_time_exhausted_; }
    int64 time_spent() const { return time_spent_; }

private:
    struct QueuedMessage {
        Message message;
        Delivery delivery;
        int target_version;
        const char* error; // why it could not be upcast, or nullptr

        int version() const { return DatumGetInt16(message.values[col_event_version]); }
        std::string_view event_type() const;
    };

    int target_version_of(const Message& message) const;
    static QueuedMessage copy_of(const Message& message, const Delivery& delivery, int target);
    void forward(const Message& message, const Delivery& delivery);
    void record_failure(const QueuedMessage& item, const char* error, bool counts);

    void flush();
    void upcast_from(std::size_t first, Oid role);
    void set_error(QueuedMessage& item, const ErrorData* error, const Upcaster* upcaster);

    MessageReceiver& receiver_;
    std::optional<int64> time_limit_;
    MemoryContext claim_memory_;
    MemoryContext queue_memory_ = nullptr; // of the queued messages
    Consumer consumer_ = {};

    pg::PallocVector<QueuedMessage> queue_;
    std::size_t queued_bytes_ = 0;
    pg::PallocVector<QueuedMessage> maybe_blocked_; // behind a failure, held back
    AggregateSet blocked_aggregates_;
    pg::PallocVector<int64> failed_ids_;
    pg::PallocVector<Failure> failures_;
    int64 token_ = 0;
    int forwarded_ = 0;
    bool is_time_exhausted_ = false; // no more upcasting in this claim
    int64 time_spent_ = 0;           // microseconds
};

// Calls claim_batch() and delivers each message in the version that the consumer asks for. Messages
// that cannot be upcast fail in the same transaction. Outside of the relay, claims again while all
// messages of a batch fail, at most 8 times. Call inside as_owner().
ClaimResult claim_with_upcasting(const ClaimRequest& request, MessageReceiver& receiver);

} // namespace outbox
