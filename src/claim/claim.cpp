#include "claim/claim_internal.hpp"

#include "extension/locks.hpp"
#include "pg/datum.hpp"
#include "pg/injection_point.hpp"

#include <algorithm>
#include <string_view>

namespace outbox {

namespace {

// Longer than most claims hold the consumer's lock; after that the caller gets no rows and asks
// again.
constexpr int max_lock_wait_ms = 100;

} // namespace

int Claim::run()
{
    if (!use_known_consumer()) {
        refresh_state();
        // Unassigned batches can be taken without the consumer's lock. If few are left, try the
        // lock and read more.
        const bool reads = needs_more_batches() && lock_consumer(0);
        if (consumer_.paused) {
            unlock_unless_appended();
            return 0;
        }
        if (consumer_.consumer_partitions > 1 && !reads)
            if (const ClaimStepResult outcome = take_unassigned_batch(); outcome.delivered > 0)
                return outcome.delivered;
    }
    // The relay does not wait, because other sinks would wait with it: the holder of the lock wakes
    // it at commit.
    if (!locked_ && !lock_consumer(is_relay() ? 0 : max_lock_wait_ms)) {
        unlock_unless_appended();
        return 0;
    }
    pg::injection_point("lock");

    using Step = ClaimStepResult (Claim::*)();
    constexpr Step steps[] = {&Claim::take_over_expired, &Claim::deliver_retries, &Claim::prefetch,
                              &Claim::take_unassigned_batch, &Claim::read_new};
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        ClaimStepResult outcome;
        for (const Step step : steps) {
            outcome = (this->*step)();
            if (outcome.delivered > 0)
                return outcome.delivered;
            if (outcome.changed || lock_busy_)
                break;
        }
        if (!outcome.changed) {
            unlock_unless_appended();
            return 0;
        }
        refresh_state();
    }
}

// Releases the consumer's lock before the end of the transaction unless appended_batch_ is set.
void Claim::unlock_unless_appended()
{
    if (locked_ && !appended_batch_)
        unlock_consumer(consumer_.id);
    locked_ = false;
}

// Sets the consumer's id from the last claim of this backend, or from the relay's cache: that saves
// reading the consumer before the lock. It is read again under the lock. Returns false if neither
// has a consumer of this name.
bool Claim::use_known_consumer()
{
    if (const ConsumerState* cached = is_relay() ? request_.relay->state_cache.lookup() : nullptr) {
        consumer_.id = cached->consumer.id;
        return true;
    }
    const std::string_view name = pg::to_view(request_.consumer);
    if (known_consumer_.name_size == 0 ||
        name != std::string_view(known_consumer_.name, known_consumer_.name_size))
        return false;
    consumer_.id = known_consumer_.id;
    return true;
}

// Stores name and id for use_known_consumer(); clears them if the consumer has several partitions.
void Claim::remember_consumer() const
{
    const std::string_view name = pg::to_view(request_.consumer);
    known_consumer_.name_size = consumer_.consumer_partitions == 1 ? name.size() : 0;
    known_consumer_.id = consumer_.id;
    std::copy(name.begin(), name.end(), known_consumer_.name);
}

// Locks the consumer by id, then reads it by name: while this session waited, the consumer may have
// been dropped and another created under its name. Then the lock is released and taken on that one.
bool Claim::lock_consumer(int max_wait_ms)
{
    for (;;) {
        const int32 consumer = consumer_.id;
        if (!outbox::lock_consumer(consumer, max_wait_ms)) {
            lock_busy_ = true;
            return false;
        }
        lock_busy_ = false; // run() may have tried before
        refresh_state_under_lock();
        remember_consumer();
        locked_ = consumer_.id == consumer;
        // The relay serves a sink by id: a later consumer of the same name is another sink.
        const bool is_another = is_relay() && consumer_.id != request_.relay->consumer;
        if (locked_)
            return !consumer_.paused && !is_another;
        unlock_consumer(consumer);
    }
}

void Claim::refresh_state()
{
    load_state(read_consumer(request_.consumer));
}

void Claim::refresh_state_under_lock()
{
    if (const ConsumerState* cached = is_relay() ? request_.relay->state_cache.lookup() : nullptr)
        load_state(*cached);
    else
        refresh_state();
}

// Caches the state only while the consumer has no retries: they change without the consumer's lock.
void Claim::cache_state(const Progress& progress, int64 reserved_token,
                        const DeferredBatch* deferred_batch) const
{
    if (is_relay() && !has_retries_)
        request_.relay->state_cache.store({consumer_, progress, false, false}, reserved_token,
                                          deferred_batch);
}

// The claim can be written after sending only if no receiver (upcasting) sits between claim and
// caller: a receiver may fail messages, which needs the batch row.
bool Claim::may_defer_write() const
{
    const bool bypasses_receiver = effective_receiver_ != &receiver_;
    return is_relay() && request_.relay->may_defer_write && !has_retries_ && bypasses_receiver;
}

void Claim::load_state(const ConsumerState& state)
{
    consumer_ = state.consumer;
    effective_receiver_ = &receiver_.begin(consumer_);
    progress_ = state.progress;
    has_retries_ = state.has_retries;
    has_due_retries_ = state.has_due_retries;
    leases_ = is_relay() ? relay_leases() : open_leases(progress_.open_tokens);
    now_ = GetCurrentTimestamp();
    if (consumer_.is_sink != is_relay())
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("this consumer is a sink, which the relay serves"),
                        errhint("Create a consumer of your own for the same events.")));
}

// Returns the sink's open leases. Reads only those that the relay does not know: for a batch that
// it has claimed it makes a lease that never expires, and a batch that it has settled is not open.
pg::PallocVector<Lease> Claim::relay_leases() const
{
    const RelayBatches& known = *request_.relay;
    pg::PallocVector<int64> unknown;
    for (const int64 token : progress_.open_tokens)
        if (!std::ranges::binary_search(known.claimed_tokens, token) &&
            !std::ranges::binary_search(known.settled_tokens, token))
            unknown.push(token);
    pg::PallocVector<Lease> leases = open_leases(unknown.view());
    for (const int64 token : progress_.open_tokens)
        if (std::ranges::binary_search(known.claimed_tokens, token))
            leases.push({token, token, 0, 0, DT_NOEND, false});
    return leases;
}

namespace {

// Passes messages on and summarizes the batch, so that its ack can count it without reading it.
class CountingReceiver final : public MessageReceiver {
public:
    explicit CountingReceiver(MessageReceiver& receiver) : receiver_(receiver) {}

    MessageReceiver& begin(const Consumer& consumer) override
    {
        next_ = &receiver_.begin(consumer);
        return *this;
    }
    void receive(const Message& message, const Delivery& delivery) override
    {
        next_->receive(message, delivery);
        collector_.add(event_facts_of(message));
        token_ = delivery.token;
    }
    bool is_full() const override { return next_->is_full(); }
    bool finish() override { return next_->finish(); }

    // Stores the summary in shared memory at once; a rollback does not undo it.
    void remember_batch() const { stats::store_batch_summary(token_, collector_.summary()); }
    int64 token() const { return token_; }

private:
    MessageReceiver& receiver_;
    MessageReceiver* next_ = nullptr;
    stats::SummaryBuilder collector_;
    int64 token_ = 0;
};

} // namespace

ClaimResult claim_batch(const ClaimRequest& request, MessageReceiver& receiver)
{
    CountingReceiver counting(receiver);
    // The relay counts each event when it settles it.
    const bool counts = stats::is_enabled() && request.relay == nullptr;
    Claim claim(request, counts ? counting : receiver);
    const int count = claim.run();
    if (counts && count > 0)
        counting.remember_batch();
    if (counts && count > 0 && request.settle_at_once && receiver.finish())
        stats::count_batch(claim.consumer(), counting.token(), GetCurrentTimestamp());
    // The commit record of a claim follows the commit of every event in it: once it is flushed, so
    // are they. The relay flushes the WAL itself before it sends.
    if (count > 0 && !request.settle_at_once && request.relay == nullptr)
        ForceSyncCommit();
    return {count, claim.has_more(), claim.was_lock_busy()};
}

} // namespace outbox
