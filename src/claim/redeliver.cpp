#include "claim/claim_internal.hpp"

#include "delivery/poison_batch.hpp"
#include "delivery/retry_queue.hpp"
#include "extension/fencing_token.hpp"
#include "extension/locks.hpp"
#include "ipc/wakeup.hpp"

#include <algorithm>

namespace outbox {

namespace {

// Retries in one batch of the relay: all copies of a batch are in memory at once.
constexpr int max_relay_retries = 32;

} // namespace

// ---- consumer partitions of ordered consumers: one open batch at a time

// Locks the consumer partition and reads the state again: another session may have delivered a
// batch of it just before. Returns false if another session holds the lock, or the consumer was
// replaced. For an unordered consumer returns true and takes no lock.
bool Claim::try_lock_consumer_partition(int32 consumer_partition)
{
    if (!consumer_.ordered)
        return true;
    const int32 consumer = consumer_.id;
    if (!outbox::try_lock_consumer_partition(consumer, consumer_partition))
        return false;
    refresh_state();
    return consumer_.id == consumer && consumer_.ordered;
}

bool Claim::has_open_batch(int32 consumer_partition) const
{
    for (const Lease& lease : leases_)
        if (lease.consumer_partition == consumer_partition && !lease.is_unassigned)
            return true;
    return false;
}

// Returns whether an unassigned batch was split off another one: its messages precede the retries.
bool Claim::has_split_remainder(int32 consumer_partition) const
{
    for (const Lease& lease : leases_)
        if (lease.consumer_partition == consumer_partition && lease.is_unassigned &&
            lease.token != lease.root_token)
            return true;
    return false;
}

const Lease* Claim::first_lease_of(int32 consumer_partition) const
{
    for (const Lease& lease : leases_)
        if (lease.consumer_partition == consumer_partition)
            return &lease;
    return nullptr;
}

// ---- batches that were delivered before

// A lease is abandoned when it expires; for the relay, when it does not know the batch: a killed
// relay leaves live leases, and a database has only one relay.
bool Claim::is_abandoned(const Lease& lease) const
{
    if (!is_relay())
        return lease.has_expired(now_);
    return !std::ranges::binary_search(request_.relay->claimed_tokens, lease.token);
}

ClaimStepResult Claim::take_over_expired()
{
    const pg::PallocVector<Lease> candidates = leases_;
    for (const Lease& lease : candidates) {
        if (!is_abandoned(lease))
            continue;
        const auto batch = try_lock_consumer_partition(lease.consumer_partition)
                               ? lock_batch_for_takeover(lease.token, is_relay() ? DT_NOEND : now_)
                               : std::nullopt;
        if (batch)
            return take_over_batch(*batch, lease);
        // The relay delivers nothing that comes after a batch that it cannot take over yet.
        lock_busy_ = is_relay();
        if (lock_busy_)
            return {};
    }
    return {};
}

// Delivers the ids of an expired or unassigned batch, whose lease is locked, under a new token,
// unless its only message becomes a dead letter. The ids beyond batch_size become an unassigned
// batch. A batch that has expired before is split, which isolates a poison message. Crashes of the
// relay count no attempts, so they split nothing.
ClaimStepResult Claim::take_over_batch(const Batch& batch, const Lease& lease)
{
    if (dead_letter_if_exhausted(consumer_, batch, lease, now_))
        return {0, true};

    const bool counts = !consumer_.is_sink && counts_as_attempt(lease);
    const Id portion = counts ? next_delivery_size(batch, lease) : count_ids(batch.ids);
    const Id first_size = Min(portion, static_cast<Id>(request_.batch_size));
    Batch parts[2] = {batch, batch};
    pg::PallocVector<IdRange> ids[2];
    ids[0].reserve(batch.ids.size());
    ids[0].set_size(take_first(batch.ids, first_size, ids[0].data()));
    ids[1].reserve(batch.ids.size() * 2);
    ids[1].set_size(subtract(batch.ids, ids[0].view(), ids[1].data()));
    // For ordered retries the remainder gets no batch: deliver_retries() finds it in the table.
    const bool has_remainder = !ids[1].empty() && !(consumer_.ordered && batch.from_retries);
    const int count = has_remainder ? 2 : 1;
    const int64 first = draw_tokens(count);
    const int64 tokens[2] = {first, first + 1};
    for (int i = 0; i < count; ++i) {
        parts[i].token = tokens[i];
        parts[i].ids = ids[i].view();
        if (counts)
            parts[i].attempts = next_attempt_number(consumer_, parts[i]);
        parts[i].deliveries += !lease.is_unassigned;
        parts[i].tenant = lease.tenant;
    }
    if (!has_remainder && counts)
        add_attempts(consumer_.id, ids[1].view(), batch.attempts);
    supersede_lease(batch.token, tokens[0]);
    const LeaseHolder holder = this->holder();
    const Progress progress =
        progress_with({tokens, static_cast<std::size_t>(count)}, {&batch.token, 1});
    if (count == 1) {
        add_newest_batch(consumer_.id, parts[0], &holder, progress);
    } else {
        add_batch(consumer_.id, parts[0], &holder);
        add_newest_batch(consumer_.id, parts[1], nullptr, progress);
        ipc::wake_all_at_commit();
    }
    appended_batch_ = has_more_ = true;
    return {deliver(parts[0]), true};
}

ClaimStepResult Claim::deliver_retries()
{
    if (!has_due_retries_)
        return {};
    Batch batch = {};
    const int limit =
        is_relay() ? Min(request_.batch_size, max_relay_retries) : request_.batch_size;
    if (!consumer_.ordered) {
        batch.ids = due_retries(consumer_.id, progress_.open_tokens, now_, limit);
    } else {
        for (const int32 consumer_partition : due_consumer_partitions(consumer_.id, now_)) {
            // The relay needs no check: aggregates that are due have no events in its other
            // batches.
            if (!try_lock_consumer_partition(consumer_partition) ||
                (!is_relay() &&
                 (has_open_batch(consumer_partition) || has_split_remainder(consumer_partition))))
                continue;
            batch.consumer_partition = consumer_partition;
            batch.ids = due_with_blocked(consumer_.id, consumer_partition, progress_.open_tokens,
                                         now_, limit);
            if (!batch.ids.empty())
                break;
        }
    }
    if (batch.ids.empty())
        return {};
    batch.token = batch.root_token = draw_tokens(1);
    batch.attempts = batch.deliveries = 1;
    batch.from_retries = true;
    const LeaseHolder holder = this->holder();
    add_newest_batch(consumer_.id, batch, &holder, progress_with({&batch.token, 1}));
    appended_batch_ = has_more_ = true;
    return {deliver(batch), true};
}

ClaimStepResult Claim::take_unassigned_batch()
{
    if (consumer_.fair)
        return deliver_next_tenant();
    // Unordered and without the lock, each worker begins at another batch, so that they seldom meet
    // at the same row lock.
    const std::size_t offset =
        locked_ || consumer_.ordered ? 0 : static_cast<std::size_t>(MyProcPid);
    const pg::PallocVector<Lease> candidates = leases_;
    const std::size_t count = candidates.size();
    for (std::size_t i = 0; i < count; ++i) {
        const Lease& lease = candidates[(i + offset) % count];
        const bool too_large = lease.message_count > request_.batch_size;
        if (!lease.is_unassigned || (too_large && !locked_))
            continue;
        if (consumer_.ordered) {
            const auto is_next = [&] {
                const Lease* first = first_lease_of(lease.consumer_partition);
                return first != nullptr && first->token == lease.token &&
                       !has_open_batch(lease.consumer_partition);
            };
            if (!is_next() || !try_lock_consumer_partition(lease.consumer_partition) || !is_next())
                continue;
        }
        if (too_large) {
            if (const auto batch = lock_batch_for_takeover(lease.token, now_))
                return take_over_batch(*batch, lease);
        } else if (const auto batch = assign_batch_to_worker(lease.token, holder())) {
            const int delivered = deliver(*batch);
            if (delivered > 0)
                unlock_unless_appended();
            return {delivered, true};
        }
    }
    return {};
}

int Claim::deliver(const Batch& batch)
{
    const int count = deliver_batch(consumer_, batch, now_, locked_until(), *effective_receiver_);
    if (effective_receiver_->finish() && count > 0 && request_.settle_at_once)
        settle_whole_batch(consumer_, batch, now_);
    return count;
}

} // namespace outbox
