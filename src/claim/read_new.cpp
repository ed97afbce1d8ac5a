#include "claim/claim_internal.hpp"

#include "claim/distribute_page.hpp"
#include "delivery/retry_queue.hpp"
#include "extension/fencing_token.hpp"
#include "extension/locks.hpp"
#include "ipc/wakeup.hpp"
#include "pg/injection_point.hpp"

#include <algorithm>

namespace outbox {

namespace {

// Pages that a claim reads in search of a message that it can deliver: a page may contain nothing
// but blocked messages, or messages for consumer partitions that have open batches.
constexpr int max_pages_per_claim = 8;

} // namespace

// Returns false if no message that would be read could be delivered now. Takes the lock of consumer
// partition 0 for an ordered consumer with one partition.
bool Claim::can_read_new()
{
    if (pages_read_ == max_pages_per_claim || !may_read_new(consumer_, leases_.view()))
        return false;
    // The relay's dispatcher keeps the order among all of its open batches.
    if (!consumer_.ordered || consumer_.consumer_partitions > 1 || is_relay())
        return true;
    return try_lock_consumer_partition(0) && first_lease_of(0) == nullptr;
}

// Returns true if an unordered consumer has at most one unassigned batch per consumer partition
// left; false for an ordered consumer and for one with one partition.
bool Claim::needs_more_batches() const
{
    std::size_t unassigned_count = 0;
    for (const Lease& lease : leases_)
        unassigned_count += lease.is_unassigned;
    return !consumer_.ordered && consumer_.consumer_partitions > 1 &&
           unassigned_count <= static_cast<std::size_t>(consumer_.consumer_partitions);
}

// Makes unassigned batches in advance: workers take them without the consumer's lock.
ClaimStepResult Claim::prefetch()
{
    if (consumer_.fair)
        return distribute_to_tenants();
    return needs_more_batches() && pages_read_ == 0 ? read_new() : ClaimStepResult{};
}

ClaimStepResult Claim::read_new()
{
    // A fair consumer reads in prefetch() only.
    if (consumer_.fair || !can_read_new())
        return {};
    ++pages_read_;
    return consumer_.consumer_partitions == 1 ? deliver_page() : distribute_page();
}

// Returns whether the cursor has moved far enough to be written although nothing is delivered.
bool Claim::should_save_cursor(const PageResult& page, Id known_upto_before) const
{
    return page.should_save_cursor() ||
           progress_.cursor.known_upto() - known_upto_before >= save_cursor_threshold;
}

// Delivers messages while they are read, for a consumer with one consumer partition. Stores the
// batch, only the cursor if nothing stays open, or leaves the batch to the relay as a
// DeferredBatch.
ClaimStepResult Claim::deliver_page()
{
    Batch batch = {};
    batch.attempts = batch.deliveries = 1;
    pg::PallocVector<IdRange> ids;
    int delivered = 0;
    const bool any_blocked =
        consumer_.ordered && has_retries_ && has_blocked_aggregates(consumer_.id, 0);
    const Id known_upto_before = progress_.cursor.known_upto();
    const Progress before = progress_;
    const int64 reserved_token = is_relay() ? request_.relay->state_cache.reserved_token() : 0;
    const bool defers_write = reserved_token != 0 && may_defer_write();
    int64 limit = request_.batch_size;
    // The relay reads less at a time, because other sinks wait meanwhile; it claims again.
    const int64 budget = is_relay() ? max_rows_examined / 10 : max_rows_examined;
    const PageResult page =
        read_page(progress_.cursor, consumer_.filter, limit, budget, [&](const Message& message) {
            if (any_blocked && add_if_blocked(consumer_, 0, message, 0))
                return true;
            if (delivered++ == 0)
                batch.token = batch.root_token =
                    defers_write ? reserved_token : draw_tokens(is_relay() ? 2 : 1);
            append_id(ids, message.id());
            effective_receiver_->receive(message, {batch.token, locked_until(), 1, false});
            if (effective_receiver_->is_full())
                limit = 0;
            return true;
        });
    has_more_ = !page.at_end;
    const bool settles = effective_receiver_->finish() && request_.settle_at_once;
    if (delivered == 0 && !should_save_cursor(page, known_upto_before)) {
        cache_state(before, reserved_token);
        return {};
    }
    batch.ids = ids.view();
    if (delivered == 0)
        batch.token = batch.root_token = draw_tokens(1);
    const bool stays_open = delivered > 0 && !settles;
    const Progress after = stays_open ? progress_with({&batch.token, 1}) : progress_with({});
    const DeferredBatch deferred_batch = {consumer_.id, batch, holder(), after};
    if (!stays_open) {
        add_cursor_row(consumer_.id, batch, after);
        cache_state(after, 0);
    } else if (defers_write) {
        cache_state(after, 0, &deferred_batch);
        keep_lock_for_session(consumer_.id);
        pg::injection_point("held");
    } else {
        add_newest_batch(consumer_.id, batch, &deferred_batch.holder, after);
        cache_state(after, batch.token + 1);
    }
    appended_batch_ = true;
    return {delivered, page.accepted > 0};
}

ClaimStepResult Claim::distribute_page()
{
    const Id known_upto_before = progress_.cursor.known_upto();
    const DistributedPage distributed =
        read_and_distribute(consumer_, leases_.view(), request_.batch_size, progress_.cursor);
    const std::size_t count = distributed.batches.size();
    if (count == 0 && !should_save_cursor(distributed.page, known_upto_before))
        return {};

    Batch batch = {};
    batch.token = batch.root_token = draw_tokens(Max(static_cast<int>(count), 1));
    batch.attempts = batch.deliveries = 1;
    pg::PallocVector<int64> tokens;
    for (std::size_t i = 0; i < count; ++i)
        tokens.push(batch.token + static_cast<int64>(i));
    const Progress progress = progress_with(tokens.view());
    if (count == 0)
        add_cursor_row(consumer_.id, batch, progress);
    for (std::size_t i = 0; i < count; ++i) {
        batch.token = batch.root_token = tokens[i];
        batch.consumer_partition = distributed.batches[i].consumer_partition;
        batch.ids = distributed.batches[i].ids;
        if (i + 1 < count)
            add_batch(consumer_.id, batch, nullptr);
        else
            add_newest_batch(consumer_.id, batch, nullptr, progress);
    }
    appended_batch_ = true;
    ipc::wake_all_at_commit();
    return {0, count > 0};
}

Progress Claim::progress_with(std::span<const int64> new_tokens,
                              std::span<const int64> without) const
{
    pg::PallocVector<int64> open;
    for (const Lease& lease : leases_)
        if (!std::ranges::binary_search(without, lease.token))
            open.push(lease.token);
    for (const int64 token : new_tokens)
        open.push(token);
    return {progress_.cursor, open.view()};
}

} // namespace outbox
