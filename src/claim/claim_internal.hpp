// One claim: its state and its steps. The members are defined in claim.cpp (locks and state),
// redeliver.cpp (batches and retries that were delivered before), read_new.cpp (new messages) and
// tenant_fairness.cpp (turns of tenants).
#pragma once

#include "claim/claim.hpp"
#include "consumer/read_page.hpp"
#include "core/limits.hpp"

namespace outbox {

struct ClaimStepResult {
    int delivered = 0;    // messages; above 0 ends the claim
    bool changed = false; // the step changed batches or the cursor: run all steps again
};

struct TenantQueueEntry; // a batch that waits for its tenant's turn

// State and steps of one call of claim_batch().
class Claim {
public:
    Claim(const ClaimRequest& request, MessageReceiver& receiver)
        : request_(request), receiver_(receiver)
    {}

    // Runs the steps until one delivers messages or none changes anything. Returns the number
    // delivered.
    int run();

    // Returns whether another claim may find messages that this one has not read or delivered.
    bool has_more() const { return has_more_; }
    // Returns whether another session held a lock that this claim needed.
    bool was_lock_busy() const { return lock_busy_; }
    int32 consumer() const { return consumer_.id; }

private:
    // Reads consumer, progress and leases from the tables. Raises undefined_object.
    void refresh_state();
    // Makes `state` the state of the claim: reads its leases, sets now_ and calls begin() of the
    // receiver. Raises an error if only one of consumer and caller is a sink's.
    void load_state(const ConsumerState& state);
    // Takes the consumer from the relay's cache if that is valid, else from the tables.
    void refresh_state_under_lock();
    // Stores the state in the relay's cache if the relay claims and the consumer has no retries.
    void cache_state(const Progress& progress, int64 reserved_token,
                     const DeferredBatch* deferred_batch = nullptr) const;
    // Returns whether the batch's rows may be written after the relay has sent the events.
    bool may_defer_write() const;

    // Takes the consumer's lock and refreshes the state. Returns false if another session holds it
    // (lock_busy_), or, with the lock, if the consumer is paused or not the relay's sink any more.
    bool lock_consumer(int max_wait_ms);
    void unlock_unless_appended();

    // The consumer's id from this backend's last claim, to save a lookup by name.
    bool use_known_consumer();
    void remember_consumer() const;

    // The steps, in their order. Each delivers at most one batch.

    // Delivers the ids of the first abandoned lease that it can lock, under a new token.
    ClaimStepResult take_over_expired();
    // Stores a batch of due rows of _outbox.retries and delivers it.
    ClaimStepResult deliver_retries();
    ClaimStepResult prefetch();
    // Assigns an unassigned batch to this worker and delivers it, split if it is too large.
    ClaimStepResult take_unassigned_batch();
    // Reads a page of the log: delivers it, or stores it as unassigned batches.
    ClaimStepResult read_new();

    // Parts of the steps.

    ClaimStepResult take_over_batch(const Batch& batch, const Lease& lease);
    ClaimStepResult deliver_page();
    // Stores a page of the log as unassigned batches of the consumer partitions. Delivers nothing.
    ClaimStepResult distribute_page();
    // Stores new messages as unassigned batches of their tenants, unless some tenant still waits
    // for its turn of this round. Delivers nothing.
    ClaimStepResult distribute_to_tenants();
    // Draws tokens and inserts the batches, merged with waiting ones, and the cursor.
    void queue_by_tenant(pg::PallocVector<TenantQueueEntry>& entries);
    // Delivers a batch of the tenant served longest ago and inserts its turn into
    // _outbox.tenant_turns.
    ClaimStepResult deliver_next_tenant();

    // Returns whether a cursor row is worth writing although nothing is delivered.
    bool should_save_cursor(const PageResult& page, Id known_upto_before) const;

    // Passes a stored batch to the receiver and returns the number of messages; settles it if
    // settle_at_once is set. 0: no message is left, and its lease is settled.
    int deliver(const Batch& batch);

    // Helpers of the steps. They judge leases_, which is as of the last load_state().
    bool is_relay() const { return request_.relay != nullptr; }
    pg::PallocVector<Lease> relay_leases() const;
    bool is_abandoned(const Lease& lease) const;
    bool try_lock_consumer_partition(int32 consumer_partition);
    // Returns whether a worker has a batch of the consumer partition: unassigned ones do not count.
    bool has_open_batch(int32 consumer_partition) const;
    bool has_split_remainder(int32 consumer_partition) const;
    // Returns the first open or unassigned lease in processing order; nullptr if there is none.
    const Lease* first_lease_of(int32 consumer_partition) const;
    bool can_read_new();
    bool needs_more_batches() const;
    // The progress to store with a new newest batch: cursor and open tokens, plus and minus these.
    Progress progress_with(std::span<const int64> new_tokens,
                           std::span<const int64> without = {}) const; // `without`: ascending
    LeaseHolder holder() const { return {request_.worker, now_, request_.lease}; }
    TimestampTz locked_until() const { return now_ + request_.lease; }

    // The consumer that this backend claimed from last, if it has one consumer partition.
    struct KnownConsumer {
        char name[limits::max_consumer_name_bytes];
        std::size_t name_size;
        int32 id;
    };
    static inline KnownConsumer known_consumer_ = {};

    const ClaimRequest& request_;
    MessageReceiver& receiver_;
    MessageReceiver* effective_receiver_ = nullptr; // as MessageReceiver::begin() returned it
    Consumer consumer_ = {};
    Progress progress_ = {};
    bool has_retries_ = false;
    bool has_due_retries_ = false;
    pg::PallocVector<Lease> leases_;
    TimestampTz now_ = 0;
    bool locked_ = false; // this transaction holds the consumer's lock
    // The consumer has a new newest batch, so the lock is kept until commit: the next claim must
    // see it.
    bool appended_batch_ = false;
    int pages_read_ = 0;
    bool has_more_ = false;
    bool lock_busy_ = false; // another session holds a lock that this claim needs
};

} // namespace outbox
