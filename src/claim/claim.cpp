#include "claim/claim_internal.hpp"

#include "extension/locks.hpp"
#include "pg/datum.hpp"
#include "pg/injection_point.hpp"

#include <algorithm>
#include <string_view>

namespace outbox {

namespace {

constexpr int lock_patience = 100; // milliseconds

} // namespace

int Claim::run()
{
    if (!recognize()) {
        refresh();
        // What others have dealt can be had without the lock; who finds little left reads on.
        const bool reads = runs_low() && lock(0);
        if (consumer_.paused) {
            unlock_if_unmoved();
            return 0;
        }
        if (consumer_.partitions > 1 && !reads)
            if (const ClaimOutcome outcome = take_unassigned_batch(); outcome.handed_out > 0)
                return outcome.handed_out;
    }
    // The relay has other sinks to look after, and is woken when whoever has the lock is done.
    if (!locked_ && !lock(is_relay() ? 0 : lock_patience)) {
        unlock_if_unmoved();
        return 0;
    }
    pg::injection_point("lock");

    using Step = ClaimOutcome (Claim::*)();
    constexpr Step steps[] = {&Claim::take_over_expired, &Claim::deliver_retries,
                              &Claim::read_ahead, &Claim::take_unassigned_batch, &Claim::read_on};
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        ClaimOutcome outcome;
        for (const Step step : steps) {
            outcome = (this->*step)();
            if (outcome.handed_out > 0)
                return outcome.handed_out;
            if (outcome.changed || busy_)
                break;
        }
        if (!outcome.changed) {
            unlock_if_unmoved();
            return 0;
        }
        refresh();
    }
}

// Who has not moved the cursor need not keep others waiting for the end of its transaction.
void Claim::unlock_if_unmoved()
{
    if (locked_ && !moved_)
        pg::unlock_consumer(consumer_.id);
    locked_ = false;
}

// Workers claim from the same consumer again and again. What is known of it from the last time
// saves a look before the lock; behind the lock it is looked at anyway.
bool Claim::recognize()
{
    if (const ConsumerState* kept = is_relay() ? request_.relay->kept.find() : nullptr) {
        consumer_.id = kept->consumer.id;
        return true;
    }
    const std::string_view name = pg::to_view(request_.consumer);
    if (known_.name_size == 0 || name != std::string_view(known_.name, known_.name_size))
        return false;
    consumer_.id = known_.id;
    return true;
}

void Claim::remember() const
{
    const std::string_view name = pg::to_view(request_.consumer);
    known_.name_size = consumer_.partitions == 1 ? name.size() : 0;
    known_.id = consumer_.id;
    std::copy(name.begin(), name.end(), known_.name);
}

// The lock is on the consumer's id, and while this one waited another may have come under its name.
bool Claim::lock(int patience)
{
    for (;;) {
        const int32 consumer = consumer_.id;
        if (!pg::lock_consumer(consumer, patience)) {
            busy_ = true;
            return false;
        }
        busy_ = false; // although it may have been before
        refresh_behind_lock();
        remember();
        locked_ = consumer_.id == consumer;
        // For the relay, one of the same name that came later is another sink.
        const bool is_another = is_relay() && consumer_.id != request_.relay->consumer;
        if (locked_)
            return !consumer_.paused && !is_another;
        pg::unlock_consumer(consumer);
    }
}

void Claim::refresh()
{
    believe(read_consumer(request_.consumer));
}

void Claim::refresh_behind_lock()
{
    if (const ConsumerState* kept = is_relay() ? request_.relay->kept.find() : nullptr)
        believe(*kept);
    else
        refresh();
}

// Only what is simple is kept: retries come and go without the lock.
void Claim::keep(const Progress& progress, int64 reserved_token,
                 const DeferredBatch* unwritten) const
{
    if (is_relay() && !has_retries_)
        request_.relay->kept.keep({consumer_, progress, false, false}, reserved_token, unwritten);
}

// Whoever does something with messages on their way to the caller may have to fail one of them at
// once, and that takes a batch.
bool Claim::may_defer_write() const
{
    const bool goes_straight_out = out_ != &sink_;
    return is_relay() && request_.relay->may_defer_write && !has_retries_ && goes_straight_out;
}

void Claim::believe(const ConsumerState& state)
{
    consumer_ = state.consumer;
    out_ = &sink_.meet(consumer_);
    progress_ = state.progress;
    has_retries_ = state.has_retries;
    has_due_retries_ = state.has_due_retries;
    leases_ = is_relay() ? leases_of_relay() : open_leases(progress_.open_tokens);
    now_ = GetCurrentTimestamp();
    if (consumer_.is_sink != is_relay())
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("this consumer is a sink, which the relay serves"),
                        errhint("Create a consumer of your own for the same events.")));
}

// What the relay has in hand, and what it has settled, need not be looked up.
pg::PallocVector<Lease> Claim::leases_of_relay() const
{
    const RelayBatches& known = *request_.relay;
    pg::PallocVector<int64> unknown;
    for (const int64 token : progress_.open_tokens)
        if (!std::ranges::binary_search(known.in_hand, token) &&
            !std::ranges::binary_search(known.settled, token))
            unknown.push(token);
    pg::PallocVector<Lease> leases = open_leases(unknown.view());
    for (const int64 token : progress_.open_tokens)
        if (std::ranges::binary_search(known.in_hand, token))
            leases.push({token, token, 0, 0, DT_NOEND, false});
    return leases;
}

namespace {

// Passes messages on, and takes note of them.
class CountingReceiver final : public MessageReceiver {
public:
    explicit CountingReceiver(MessageReceiver& sink) : sink_(sink) {}

    MessageReceiver& meet(const Consumer& consumer) override
    {
        next_ = &sink_.meet(consumer);
        return *this;
    }
    void put(const Message& message, const Delivery& delivery) override
    {
        next_->put(message, delivery);
        collector_.add(facts_of(message));
        token_ = delivery.token;
    }
    bool is_full() const override { return next_->is_full(); }
    bool complete() override { return next_->complete(); }

    void remember() const { stats::remember_batch(token_, collector_.summary()); }
    int64 token() const { return token_; }

private:
    MessageReceiver& sink_;
    MessageReceiver* next_ = nullptr;
    stats::Collector collector_;
    int64 token_ = 0;
};

} // namespace

Claimed claim(const ClaimRequest& request, MessageReceiver& sink)
{
    CountingReceiver counting(sink);
    // The relay knows what becomes of each of its events.
    const bool counts = stats::is_on() && request.relay == nullptr;
    Claim claim(request, counts ? counting : sink);
    const int count = claim.run();
    if (counts && count > 0)
        counting.remember();
    if (counts && count > 0 && request.settle && sink.complete())
        stats::count_batch(claim.consumer(), counting.token(), GetCurrentTimestamp());
    // The commit of a claim lies behind every commit that it saw: once it is durable, so are they.
    // The relay sees to that by itself, before anything leaves.
    if (count > 0 && !request.settle && request.relay == nullptr)
        ForceSyncCommit();
    return {count, claim.may_find_more(), claim.was_busy()};
}

} // namespace outbox
