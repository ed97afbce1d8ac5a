// UpcastingReceiver: messages leave in the version that their consumer asks for. The log, what
// waits for another attempt and the dead letters keep what was written.
#pragma once

#include "claim/claim.hpp"
#include "consumer/aggregate_set.hpp"
#include "delivery/settle.hpp"

namespace outbox {

struct Upcaster;

// Brings messages to the version that is asked for, and passes them on. Many are collected first,
// because other people's functions run in subtransactions, which cost more than most of them.
class UpcastingReceiver final : public MessageReceiver {
public:
    // With a limit, so many microseconds of this are enough.
    explicit UpcastingReceiver(MessageReceiver& receiver, std::optional<int64> limit = std::nullopt)
        : receiver_(receiver), time_limit_(limit), claim_memory_(CurrentMemoryContext)
    {}

    MessageReceiver& begin(const Consumer& consumer) override;
    void receive(const Message& message, const Delivery& delivery) override;
    bool is_full() const override { return is_time_exhausted_ || receiver_.is_full(); }

    // False if messages have failed.
    bool finish() override;

    // Writes down what has failed, and passes on what need not wait behind it. Call when the batch
    // is in its table.
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
        int target_version; // version
        const char* error;

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
    MemoryContext queue_memory_ = nullptr; // of what is collected
    Consumer consumer_ = {};

    pg::PallocVector<QueuedMessage> queue_;
    std::size_t queued_bytes_ = 0;
    pg::PallocVector<QueuedMessage> maybe_blocked_; // whether these have to wait is not known yet
    AggregateSet blocked_aggregates_;
    pg::PallocVector<int64> failed_ids_;
    pg::PallocVector<Failure> failures_;
    int64 token_ = 0;
    int forwarded_ = 0;
    bool is_time_exhausted_ = false; // no more of this in the present claim
    int64 time_spent_ = 0;
};

// claim(), with each message in the version that the consumer asks for. One that cannot be had in
// it has failed, in the same transaction.
ClaimResult claim_with_upcasting(const ClaimRequest& request, MessageReceiver& receiver);

} // namespace outbox
