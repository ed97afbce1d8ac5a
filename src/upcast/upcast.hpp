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
    explicit UpcastingReceiver(MessageReceiver& sink, std::optional<int64> limit = std::nullopt)
        : sink_(sink), limit_(limit), lasting_(CurrentMemoryContext)
    {}

    MessageReceiver& meet(const Consumer& consumer) override;
    void put(const Message& message, const Delivery& delivery) override;
    bool is_full() const override { return is_exhausted_ || sink_.is_full(); }

    // False if messages have failed.
    bool complete() override;

    // Writes down what has failed, and passes on what need not wait behind it. Call when the batch
    // is in its table.
    void settle_failures();

    int64 token() const { return token_; }
    int passed_on() const { return passed_on_; }
    int failed() const { return static_cast<int>(failed_.size()); }
    bool is_exhausted() const { return is_exhausted_; }
    int64 time() const { return time_; }

private:
    struct Item {
        Message message;
        Delivery delivery;
        int target; // version
        const char* error;

        int version() const { return DatumGetInt16(message.values[col_event_version]); }
        std::string_view event_type() const;
    };

    int target_of(const Message& message) const;
    static Item copy_of(const Message& message, const Delivery& delivery, int target);
    void pass_on(const Message& message, const Delivery& delivery);
    void fail_item(const Item& item, const char* error, bool counts);

    void flush();
    void upcast_from(std::size_t first, Oid role);
    void explain(Item& item, const ErrorData* error, const Upcaster* upcaster);

    MessageReceiver& sink_;
    std::optional<int64> limit_;
    MemoryContext lasting_;
    MemoryContext memory_ = nullptr; // of what is collected
    Consumer consumer_ = {};

    pg::PallocVector<Item> items_;
    std::size_t bytes_ = 0;
    pg::PallocVector<Item> held_; // whether these have to wait is not known yet
    AggregateSet blocked_;
    pg::PallocVector<int64> failed_;
    pg::PallocVector<Failure> failures_;
    int64 token_ = 0;
    int passed_on_ = 0;
    bool is_exhausted_ = false; // no more of this in the present claim
    int64 time_ = 0;
};

// claim(), with each message in the version that the consumer asks for. One that cannot be had in
// it has failed, in the same transaction.
Claimed claim_upcast(const ClaimRequest& request, MessageReceiver& sink);

} // namespace outbox
