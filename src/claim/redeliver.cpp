#include "claim/claim_internal.hpp"

#include "delivery/poison_batch.hpp"
#include "delivery/retry_queue.hpp"
#include "extension/fencing_token.hpp"
#include "extension/locks.hpp"
#include "ipc/wakeup.hpp"

#include <algorithm>

namespace outbox {

namespace {

// How many messages the relay gets from those that wait for another attempt.
constexpr int relay_retries = 32;

} // namespace

// ---- partitions of ordered consumers: one open batch at a time

// The lock first, and then a new look: another may have handed out from this partition just before.
bool Claim::enter(int32 partition)
{
    if (!consumer_.ordered)
        return true;
    const int32 consumer = consumer_.id;
    if (!pg::try_lock_partition(consumer, partition))
        return false;
    refresh();
    return consumer_.id == consumer && consumer_.ordered;
}

bool Claim::is_busy(int32 partition) const
{
    for (const Lease& lease : leases_)
        if (lease.partition == partition && !lease.is_unassigned)
            return true;
    return false;
}

// Does a batch wait that was split off another? What is in it comes before what has failed since.
bool Claim::has_rest(int32 partition) const
{
    for (const Lease& lease : leases_)
        if (lease.partition == partition && lease.is_unassigned && lease.token != lease.root)
            return true;
    return false;
}

const Lease* Claim::first_of(int32 partition) const
{
    for (const Lease& lease : leases_)
        if (lease.partition == partition)
            return &lease;
    return nullptr;
}

// ---- what was handed out before

// A relay that was killed leaves leases that are good for a while; its successor need not wait.
bool Claim::is_left_behind(const Lease& lease) const
{
    if (!is_relay())
        return lease.has_expired(now_);
    return !std::ranges::binary_search(request_.relay->in_hand, lease.token);
}

ClaimOutcome Claim::take_over_expired()
{
    const pg::PallocVector<Lease> candidates = leases_;
    for (const Lease& lease : candidates) {
        if (!is_left_behind(lease))
            continue;
        const auto batch = enter(lease.partition)
                               ? lock_for_takeover(lease.token, is_relay() ? DT_NOEND : now_)
                               : std::nullopt;
        if (batch)
            return take_over(*batch, lease);
        // What comes later must not pass it.
        busy_ = is_relay();
        if (busy_)
            return {};
    }
    return {};
}

// The same ids under a new token. A batch that has expired before is split, so that a message that
// kills its workers is alone in the end. A crash of the relay is no message's fault.
ClaimOutcome Claim::take_over(const Batch& batch, const Lease& lease)
{
    if (dead_letter_if_exhausted(consumer_, batch, lease, now_))
        return {0, true};

    const bool counts = !consumer_.is_sink && has_used_an_attempt(lease);
    const Id portion = counts ? next_portion(batch, lease) : count_ids(batch.ids);
    const Id first_size = Min(portion, static_cast<Id>(request_.batch_size));
    Batch parts[2] = {batch, batch};
    pg::PallocVector<IdRange> ids[2];
    ids[0].reserve(batch.ids.size());
    ids[0].set_size(take_first(batch.ids, first_size, ids[0].data()));
    ids[1].reserve(batch.ids.size() * 2);
    ids[1].set_size(subtract(batch.ids, ids[0].view(), ids[1].data()));
    // What waits in order is found again where it waits.
    const bool has_rest = !ids[1].empty() && !(consumer_.ordered && batch.from_retries);
    const int count = has_rest ? 2 : 1;
    const int64 first = draw_tokens(count);
    const int64 tokens[2] = {first, first + 1};
    for (int i = 0; i < count; ++i) {
        parts[i].token = tokens[i];
        parts[i].ids = ids[i].view();
        if (counts)
            parts[i].attempts = next_attempt(consumer_, parts[i]);
        parts[i].deliveries += !lease.is_unassigned;
        parts[i].tenant = lease.tenant;
    }
    if (!has_rest && counts)
        count_attempts(consumer_.id, ids[1].view(), batch.attempts);
    supersede(batch.token, tokens[0]);
    const Holder holder = this->holder();
    const Progress progress =
        progress_with({tokens, static_cast<std::size_t>(count)}, {&batch.token, 1});
    if (count == 1) {
        add_newest_batch(consumer_.id, parts[0], &holder, progress);
    } else {
        add_batch(consumer_.id, parts[0], &holder);
        add_newest_batch(consumer_.id, parts[1], nullptr, progress);
        pg::wake_at_commit();
    }
    moved_ = more_ = true;
    return {pass_on(parts[0]), true};
}

ClaimOutcome Claim::deliver_retries()
{
    if (!has_due_retries_)
        return {};
    Batch batch = {};
    // Copies are read all at once, and the relay's memory is small.
    const int limit = is_relay() ? Min(request_.batch_size, relay_retries) : request_.batch_size;
    if (!consumer_.ordered) {
        batch.ids = due_retries(consumer_.id, progress_.open_tokens, now_, limit);
    } else {
        for (const int32 partition : due_partitions(consumer_.id, now_)) {
            // The aggregates that are due have nothing in other batches of the relay.
            if (!enter(partition) || (!is_relay() && (is_busy(partition) || has_rest(partition))))
                continue;
            batch.partition = partition;
            batch.ids = due_chains(consumer_.id, partition, progress_.open_tokens, now_, limit);
            if (!batch.ids.empty())
                break;
        }
    }
    if (batch.ids.empty())
        return {};
    batch.token = batch.root = draw_tokens(1);
    batch.attempts = batch.deliveries = 1;
    batch.from_retries = true;
    const Holder holder = this->holder();
    add_newest_batch(consumer_.id, batch, &holder, progress_with({&batch.token, 1}));
    moved_ = more_ = true;
    return {pass_on(batch), true};
}

ClaimOutcome Claim::take_unassigned_batch()
{
    if (consumer_.fair)
        return serve_next_tenant();
    // Without the lock, and where order does not matter, each worker begins elsewhere.
    const std::size_t offset =
        locked_ || consumer_.ordered ? 0 : static_cast<std::size_t>(MyProcPid);
    const pg::PallocVector<Lease> candidates = leases_;
    const std::size_t count = candidates.size();
    for (std::size_t i = 0; i < count; ++i) {
        const Lease& lease = candidates[(i + offset) % count];
        const bool too_large = lease.size > request_.batch_size;
        if (!lease.is_unassigned || (too_large && !locked_))
            continue;
        if (consumer_.ordered) {
            const auto is_next = [&] {
                const Lease* first = first_of(lease.partition);
                return first != nullptr && first->token == lease.token && !is_busy(lease.partition);
            };
            if (!is_next() || !enter(lease.partition) || !is_next())
                continue;
        }
        if (too_large) {
            if (const auto batch = lock_for_takeover(lease.token, now_))
                return take_over(*batch, lease);
        } else if (const auto batch = pick_up(lease.token, holder())) {
            const int handed_out = pass_on(*batch);
            if (handed_out > 0)
                unlock_if_unmoved();
            return {handed_out, true};
        }
    }
    return {};
}

int Claim::pass_on(const Batch& batch)
{
    const int count = deliver_batch(consumer_, batch, now_, locked_until(), *out_);
    if (out_->complete() && count > 0 && request_.settle)
        settle_at_once(consumer_, batch, now_);
    return count;
}

} // namespace outbox
