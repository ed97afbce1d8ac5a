// A claim under way: what it knows, and the steps that it can take. Its parts are in claim.cpp
// (lock and state), claim_again.cpp (what was handed out before), claim_new.cpp (what is new) and
// claim_fair.cpp (the turns of tenants).
#pragma once

#include "claim/claim.hpp"
#include "consumer/read_page.hpp"
#include "core/limits.hpp"

namespace outbox {

struct ClaimOutcome {
    int handed_out = 0;
    bool changed = false; // something was settled or moved: it is worth looking again
};

struct TenantQueueEntry; // what waits for a tenant's turn

class Claim {
public:
    Claim(const ClaimRequest& request, MessageReceiver& sink) : request_(request), sink_(sink) {}

    int run();

    // Is there something that it has not looked at, or not handed out?
    bool may_find_more() const { return more_; }
    bool was_busy() const { return busy_; }
    int32 consumer() const { return consumer_.id; }

private:
    // Reads consumer, cursor and leases anew; or takes them as they were left.
    void refresh();
    void believe(const ConsumerState& state);
    void refresh_behind_lock();
    void keep(const Progress& progress, int64 reserved_token,
              const DeferredBatch* unwritten = nullptr) const;
    bool may_defer_write() const;
    bool lock(int patience);
    void unlock_if_unmoved();

    bool recognize();
    void remember() const;

    // The work a claim can find, in the order in which it looks.
    ClaimOutcome take_over_expired();
    ClaimOutcome deliver_retries();
    ClaimOutcome read_ahead();
    ClaimOutcome take_unassigned_batch();
    ClaimOutcome read_on();

    ClaimOutcome take_over(const Batch& batch, const Lease& lease);
    ClaimOutcome deliver_page();
    ClaimOutcome distribute_page();
    ClaimOutcome distribute_to_tenants();
    void queue_by_tenant(pg::PallocVector<TenantQueueEntry>& asides);
    ClaimOutcome serve_next_tenant();

    bool is_worth_remembering(const Page& page, Id known_before) const;

    int pass_on(const Batch& batch);

    bool is_relay() const { return request_.relay != nullptr; }
    pg::PallocVector<Lease> leases_of_relay() const;
    bool is_left_behind(const Lease& lease) const;
    bool enter(int32 partition);
    bool is_busy(int32 partition) const;
    bool has_rest(int32 partition) const;
    const Lease* first_of(int32 partition) const;
    bool can_read_on();
    bool runs_low() const;
    Progress progress_with(std::span<const int64> new_tokens,
                           std::span<const int64> without = {}) const; // sorted
    Holder holder() const { return {request_.worker, now_, request_.lease}; }
    TimestampTz locked_until() const { return now_ + request_.lease; }

    // The consumer that this backend claimed from last, if it has one partition.
    struct Known {
        char name[limits::max_consumer_name_bytes];
        std::size_t name_size;
        int32 id;
    };
    static inline Known known_ = {};

    const ClaimRequest& request_;
    MessageReceiver& sink_;
    MessageReceiver* out_ = nullptr; // where it has messages put
    Consumer consumer_ = {};
    Progress progress_ = {};
    bool has_retries_ = false;
    bool has_due_retries_ = false;
    pg::PallocVector<Lease> leases_;
    TimestampTz now_ = 0;
    bool locked_ = false; // the consumer's lock is ours
    bool moved_ = false;  // and must stay ours, because the consumer has a new newest batch
    int pages_ = 0;       // that were read
    bool more_ = false;   // may be had by another claim
    bool busy_ = false;   // another had what this one needs
};

} // namespace outbox
