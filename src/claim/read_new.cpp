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

// How many pages a claim reads in search of something that can be handed out now.
constexpr int max_pages = 8;

} // namespace

// Is there anybody who could take what would be read?
bool Claim::can_read_on()
{
    if (pages_ == max_pages || !may_read_on(consumer_, leases_.view()))
        return false;
    // The relay keeps the order of what it has in hand by itself.
    if (!consumer_.ordered || consumer_.partitions > 1 || is_relay())
        return true;
    return enter(0) && first_of(0) == nullptr;
}

// Without order, so few batches wait that the workers will soon be out of them?
bool Claim::runs_low() const
{
    std::size_t is_unassigned = 0;
    for (const Lease& lease : leases_)
        is_unassigned += lease.is_unassigned;
    return !consumer_.ordered && consumer_.partitions > 1 &&
           is_unassigned <= static_cast<std::size_t>(consumer_.partitions);
}

// The others pick up what is left meanwhile.
ClaimOutcome Claim::read_ahead()
{
    if (consumer_.fair)
        return distribute_to_tenants();
    return runs_low() && pages_ == 0 ? read_on() : ClaimOutcome{};
}

ClaimOutcome Claim::read_on()
{
    // Who is fair has read ahead.
    if (consumer_.fair || !can_read_on())
        return {};
    ++pages_;
    return consumer_.partitions == 1 ? deliver_page() : distribute_page();
}

// Is it worth a row to remember how far this one has read, although it hands out nothing?
bool Claim::is_worth_remembering(const Page& page, Id known_before) const
{
    return page.is_worth_remembering() ||
           progress_.cursor.known_upto() - known_before >= worth_remembering;
}

// Straight to the caller, in one pass.
ClaimOutcome Claim::deliver_page()
{
    Batch batch = {};
    batch.attempts = batch.deliveries = 1;
    pg::PallocVector<IdRange> ids;
    int handed_out = 0;
    const bool some_wait = consumer_.ordered && has_retries_ && has_blocked(consumer_.id, 0);
    const Id known_before = progress_.cursor.known_upto();
    const Progress before = progress_;
    const int64 reserved_token = is_relay() ? request_.relay->kept.reserved_token() : 0;
    const bool defers_write = reserved_token != 0 && may_defer_write();
    int64 limit = request_.batch_size;
    // The relay has other sinks to look after, and comes again.
    const int64 budget = is_relay() ? reading_budget / 10 : reading_budget;
    const Page page =
        read_page(progress_.cursor, consumer_.filter, limit, budget, [&](const Message& message) {
            if (some_wait && must_wait(consumer_, 0, message, 0))
                return true;
            if (handed_out++ == 0)
                batch.token = batch.root =
                    defers_write ? reserved_token : draw_tokens(is_relay() ? 2 : 1);
            append_to(ids, message.id());
            out_->put(message, {batch.token, locked_until(), 1, false});
            if (out_->is_full())
                limit = 0;
            return true;
        });
    more_ = !page.at_end;
    const bool settles = out_->complete() && request_.settle;
    if (handed_out == 0 && !is_worth_remembering(page, known_before)) {
        keep(before, reserved_token);
        return {};
    }
    batch.ids = ids.view();
    if (handed_out == 0)
        batch.token = batch.root = draw_tokens(1);
    const bool stays_open = handed_out > 0 && !settles;
    const Progress after = stays_open ? progress_with({&batch.token, 1}) : progress_with({});
    const DeferredBatch unwritten = {consumer_.id, batch, holder(), after};
    if (!stays_open) {
        add_cursor(consumer_.id, batch, after);
        keep(after, 0);
    } else if (defers_write) {
        keep(after, 0, &unwritten);
        pg::keep_lock_for_session(consumer_.id);
        pg::injection_point("held");
    } else {
        add_newest_batch(consumer_.id, batch, &unwritten.holder, after);
        keep(after, batch.token + 1);
    }
    moved_ = true;
    return {handed_out, page.taken > 0};
}

ClaimOutcome Claim::distribute_page()
{
    const Id known_before = progress_.cursor.known_upto();
    const DistributedPage is_unassigned =
        read_and_distribute(consumer_, leases_.view(), request_.batch_size, progress_.cursor);
    const std::size_t count = is_unassigned.batches.size();
    if (count == 0 && !is_worth_remembering(is_unassigned.page, known_before))
        return {};

    Batch batch = {};
    batch.token = batch.root = draw_tokens(Max(static_cast<int>(count), 1));
    batch.attempts = batch.deliveries = 1;
    pg::PallocVector<int64> tokens;
    for (std::size_t i = 0; i < count; ++i)
        tokens.push(batch.token + static_cast<int64>(i));
    const Progress progress = progress_with(tokens.view());
    if (count == 0)
        add_cursor(consumer_.id, batch, progress);
    for (std::size_t i = 0; i < count; ++i) {
        batch.token = batch.root = tokens[i];
        batch.partition = is_unassigned.batches[i].partition;
        batch.ids = is_unassigned.batches[i].ids;
        if (i + 1 < count)
            add_batch(consumer_.id, batch, nullptr);
        else
            add_newest_batch(consumer_.id, batch, nullptr, progress);
    }
    moved_ = true;
    pg::wake_at_commit();
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
