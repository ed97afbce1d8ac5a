// A claim under way: what it knows, and the steps that it can take. Its parts are in claim.cpp
// (lock and state), claim_again.cpp (what was handed out before), claim_new.cpp (what is new) and
// claim_fair.cpp (the turns of tenants).
#pragma once

#include "claim/claim.hpp"
#include "consumer/read_page.hpp"
#include "core/limits.hpp"

namespace outbox {

struct ClaimStepResult {
    int delivered = 0;
    bool changed = false; // something was settled or moved: it is worth looking again
};

struct TenantQueueEntry; // what waits for a tenant's turn

class Claim {
public:
    Claim(const ClaimRequest& request, MessageReceiver& receiver)
        : request_(request), receiver_(receiver)
    {}

    int run();

    // Is there something that it has not looked at, or not handed out?
    bool has_more() const { return has_more_; }
    bool was_lock_busy() const { return lock_busy_; }
    int32 consumer() const { return consumer_.id; }

private:
    // Reads consumer, cursor and leases anew; or takes them as they were left.
    void refresh_state();
    void load_state(const ConsumerState& state);
    void refresh_state_under_lock();
    void cache_state(const Progress& progress, int64 reserved_token,
                     const DeferredBatch* deferred_batch = nullptr) const;
    bool may_defer_write() const;
    bool lock_consumer(int max_wait_ms);
    void unlock_unless_appended();

    bool use_known_consumer();
    void remember_consumer() const;

    // The work a claim can find, in the order in which it looks.
    ClaimStepResult take_over_expired();
    ClaimStepResult deliver_retries();
    ClaimStepResult prefetch();
    ClaimStepResult take_unassigned_batch();
    ClaimStepResult read_new();

    ClaimStepResult take_over_batch(const Batch& batch, const Lease& lease);
    ClaimStepResult deliver_page();
    ClaimStepResult distribute_page();
    ClaimStepResult distribute_to_tenants();
    void queue_by_tenant(pg::PallocVector<TenantQueueEntry>& entries);
    ClaimStepResult deliver_next_tenant();

    bool should_save_cursor(const PageResult& page, Id known_upto_before) const;

    int deliver(const Batch& batch);

    bool is_relay() const { return request_.relay != nullptr; }
    pg::PallocVector<Lease> relay_leases() const;
    bool is_abandoned(const Lease& lease) const;
    bool try_lock_consumer_partition(int32 consumer_partition);
    bool has_open_batch(int32 consumer_partition) const;
    bool has_split_remainder(int32 consumer_partition) const;
    const Lease* first_lease_of(int32 consumer_partition) const;
    bool can_read_new();
    bool needs_more_batches() const;
    Progress progress_with(std::span<const int64> new_tokens,
                           std::span<const int64> without = {}) const; // sorted
    LeaseHolder holder() const { return {request_.worker, now_, request_.lease}; }
    TimestampTz locked_until() const { return now_ + request_.lease; }

    // The consumer that this backend claimed from last, if it has one partition.
    struct KnownConsumer {
        char name[limits::max_consumer_name_bytes];
        std::size_t name_size;
        int32 id;
    };
    static inline KnownConsumer known_consumer_ = {};

    const ClaimRequest& request_;
    MessageReceiver& receiver_;
    MessageReceiver* effective_receiver_ = nullptr; // where it has messages put
    Consumer consumer_ = {};
    Progress progress_ = {};
    bool has_retries_ = false;
    bool has_due_retries_ = false;
    pg::PallocVector<Lease> leases_;
    TimestampTz now_ = 0;
    bool locked_ = false;         // the consumer's lock is ours
    bool appended_batch_ = false; // and must stay ours, because the consumer has a new newest batch
    int pages_read_ = 0;          // that were read
    bool has_more_ = false;       // may be had by another claim
    bool lock_busy_ = false;      // another had what this one needs
};

} // namespace outbox
