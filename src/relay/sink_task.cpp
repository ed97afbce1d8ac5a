#include "relay/sink_task.hpp"

#include "delivery/retry_queue.hpp"
#include "delivery/settle.hpp"
#include "extension/fencing_token.hpp"
#include "extension/guc.hpp"
#include "extension/locks.hpp"
#include "extension/sqlstates.hpp"
#include "extension/worker_transaction.hpp"
#include "pg/injection_point.hpp"
#include "pg/server_log.hpp"
#include "pg/wal_flush.hpp"
#include "upcast/upcast.hpp"

extern "C" {
#include "common/pg_prng.h"
}

#include <algorithm>

namespace outbox {

namespace {

using sink::TimePoint;
using std::chrono::milliseconds;

// Results are settled together with the next claim, or when there are settle_threshold of them (or
// a quarter of a claim, if that is more), or after max_unsettled_interval. A crash sends events
// again whose results are not settled.
constexpr std::size_t settle_threshold = 256;
constexpr milliseconds max_unsettled_interval{10};

// The WAL of the claim's commit is flushed this long after it, behind the requests, unless another
// process has flushed it. A crash in between repeats the claim.
constexpr milliseconds max_unflushed_interval{20};

// Events that are added before they are sent: few enough to stay in the CPU's cache meanwhile.
constexpr std::size_t events_per_send = 64;

// Pause while another session holds the consumer's lock.
constexpr milliseconds pause_while_locked{20};

constexpr milliseconds pause_after_error{1000};

// After a claim whose upcasters took at least upcasting_threshold, the task pauses nine times as
// long: other sinks wait while upcasters run, so they get a tenth of the time.
constexpr int upcasting_pause_factor = 9;
constexpr milliseconds upcasting_threshold{100};

constexpr milliseconds pause_after_lost_lease{100};

milliseconds lease_duration()
{
    return milliseconds(settings::lease);
}

} // namespace

SinkTask::SinkTask(SinkDefinition definition, std::unique_ptr<sink::Sink> sink)
    : definition_(std::move(definition)), activity_("relay to sink " + definition_.name),
      dispatcher_(sink::make_dispatcher(std::move(sink), definition_.ordered, definition_.policy,
                                        [] { return pg_prng_double(&pg_global_prng_state); })),
      metadata_keys_(dispatcher_->metadata_keys()),
      status_reporter_(definition_.consumer, definition_.tenant, definition_.name)
{}

void SinkTask::invalidate_cache()
{
    may_have_messages_ = checks_retries_ = true;
    state_cache_.invalidate();
}

void SinkTask::run_once(std::size_t memory)
{
    const TimePoint now = sink::Clock::now();
    dispatcher_->poll(now);
    if (now >= next_check_) {
        next_check_ = now + milliseconds(settings::relay_interval);
        invalidate_cache();
    }
    if (should_release_batches(now))
        release_batches();
    memory_limit_ = memory;
    const bool claims = should_claim(now, memory);
    const bool settles = should_settle(now);
    if (now >= retry_at_ && (claims || settles || should_renew(now))) {
        run_transaction(now, settles, claims, memory);
        dispatcher_->poll(sink::Clock::now());
        write_deferred_batch(now);
    }
    if (now >= flush_by_) {
        flush_by_ = never;
        pg::guarded_call([] { pg::flush_wal_upto(pg::last_commit_position()); });
    }
    if (!dispatcher_->settled().empty() && settle_by_ == never)
        settle_by_ = now + max_unsettled_interval;
    status_reporter_.publish(*dispatcher_, transaction_error_, now);
}

// ---- planning

bool SinkTask::should_settle(TimePoint now) const
{
    const auto& settled = dispatcher_->settled();
    const auto was_rejected = [](const sink::SettledEvent& one) { return !one.delivered; };
    const std::size_t threshold = std::max(settle_threshold, dispatcher_->claim_size() / 4);
    return !settled.empty() && (settled.size() >= threshold || now >= settle_by_ ||
                                std::ranges::any_of(settled, was_rejected));
}

// Returns whether to claim now. Claimed events take up to half of the memory, because a request in
// flight contains a copy of its event.
bool SinkTask::should_claim(TimePoint now, std::size_t memory) const
{
    return may_have_messages_ && now >= claim_at_ && dispatcher_->can_take_more(now) &&
           dispatcher_->claimed_bytes() < memory / 2;
}

bool SinkTask::should_renew(TimePoint now) const
{
    return std::ranges::any_of(batches_,
                               [&](const auto& one) { return one.second.renew_at <= now; });
}

// Returns whether a back-off is long enough to release the batches: that frees their memory for
// other sinks, and their leases need no renewal.
bool SinkTask::should_release_batches(TimePoint now) const
{
    return dispatcher_->is_backing_off(now) && dispatcher_->in_flight() == 0 && !batches_.empty() &&
           dispatcher_->resume_at() - now > lease_duration() / 3;
}

TransactionPlan SinkTask::make_plan(TimePoint now, bool settles, bool claims) const
{
    TransactionPlan plan;
    plan.settled_batches = settled_batches_;
    if (settles)
        plan_settlements(plan, *dispatcher_, batches_, definition_.ordered);
    for (const auto& [token, batch] : batches_) {
        // A batch that ends in this transaction is not renewed. A rejection may end any batch.
        const auto delivered = plan.delivered.find(token);
        const bool ends =
            delivered != plan.delivered.end() && delivered->second.count == batch.unsettled;
        (ends ? plan.settled_batches : plan.open_batches).push_back(token);
        if (ends && batch.from_log)
            plan.delivered_whole.push_back(token);
        if (batch.renew_at <= now && !ends && plan.rejections.empty())
            plan.renewals.push_back(token);
    }
    std::ranges::sort(plan.settled_batches);
    plan.claim_size = claims ? dispatcher_->claim_size() : 0;
    plan.checks_retries = claims && (checks_retries_ || !plan.rejections.empty());
    return plan;
}

// ---- the transaction

void SinkTask::run_transaction(TimePoint now, bool settles, bool claims, std::size_t memory)
{
    TransactionPlan plan = make_plan(now, settles, claims);
    // Only this process acts on the claim, so a crash may lose its commit, as long as the events
    // are durable before they are sent: flush_needed() covers their commits. With synchronous
    // standbys a local flush is not enough, and the claim's commit waits for them.
    const auto commit =
        pg::has_synchronous_standbys() ? CommitMode::durable : CommitMode::asynchronous;
    // If the transaction has nothing to write but the claim, the claim is written after sending.
    const bool may_defer_write =
        commit == CommitMode::asynchronous && plan.settled_count == 0 && plan.renewals.empty();
    SinkEventBuilder sink_events(memory / 2 - std::min(memory / 2, dispatcher_->claimed_bytes()),
                                 metadata_keys_, plan.claim_size, dispatcher_->event_pool());
    if (!plan.rejections.empty())
        state_cache_.invalidate();
    ClaimResult claimed;
    const auto rollback = in_transaction(
        activity_.c_str(),
        [&] {
            write_settlements(plan, *dispatcher_, batches_, definition_.consumer);
            if (plan.claim_size > 0)
                claimed = claim_next(plan, may_defer_write, sink_events);
            if (plan.checks_retries)
                plan.next_retry =
                    next_retry_time(definition_.consumer, GetCurrentTimestamp()).value_or(DT_NOEND);
        },
        commit);
    if (rollback) {
        state_cache_.invalidate();
        pg::guarded_call([] { release_session_lock(); });
        handle_rollback(*rollback, now);
        return;
    }
    state_cache_.commit();
    transaction_error_.clear();
    flush_by_ = now + max_unflushed_interval;
    pg::guarded_call([&] { pg::flush_wal_upto(sink_events.flush_needed()); });
    if (claimed.count > 0)
        settled_batches_.clear(); // the newest batch no longer lists their tokens
    apply_committed(plan, now);
    send(sink_events, now);
    if (claims)
        may_have_messages_ = claimed.has_more || claimed.lock_busy;
    if (claimed.lock_busy)
        retry_at_ = now + pause_while_locked;
    if (plan.checks_retries) {
        const int64 interval = settings::relay_interval;
        const int64 due = plan.next_retry == DT_NOEND
                              ? interval
                              : (plan.next_retry - GetCurrentTimestamp()) / 1000 + 1;
        next_check_ = now + milliseconds(std::clamp<int64>(due, 1, interval));
        checks_retries_ = false;
    }
    // Messages whose upcaster failed have become retries, which the cache does not know.
    if (claimed.failed > 0)
        invalidate_cache();
    if (const std::chrono::microseconds spent(claimed.upcasting_us); spent >= upcasting_threshold)
        claim_at_ = sink::Clock::now() + upcasting_pause_factor * spent;
}

ClaimResult SinkTask::claim_next(const TransactionPlan& plan, bool may_defer_write,
                                 SinkEventBuilder& sink_events) const
{
    constexpr int64 microseconds = 1000;
    sink_events.reset();
    const RelayBatches known = {definition_.consumer, plan.open_batches, plan.settled_batches,
                                state_cache_, may_defer_write};
    const ClaimRequest request = {
        PointerGetDatum(cstring_to_text(definition_.name.c_str())),
        static_cast<int>(plan.claim_size),
        settings::lease * microseconds,
        PointerGetDatum(cstring_to_text(psprintf("outbox relay (pid %d)", MyProcPid))),
        false,
        &known};
    return claim_with_upcasting(request, sink_events);
}

// Writes the batch of the last claim, whose events are in flight. If that fails, the events are
// claimed and sent again, as after a crash.
void SinkTask::write_deferred_batch(TimePoint now)
{
    const DeferredBatch* deferred_batch = state_cache_.deferred_batch();
    if (deferred_batch == nullptr)
        return;
    const int64 token = deferred_batch->batch.token;
    int64 reserved_token = 0;
    const auto rollback = in_transaction(
        activity_.c_str(),
        [&] {
            pg::injection_point("unwritten");
            add_newest_batch(deferred_batch->consumer, deferred_batch->batch,
                             &deferred_batch->holder, deferred_batch->progress);
            reserved_token = draw_tokens(1);
        },
        CommitMode::asynchronous);
    pg::guarded_call([] { release_session_lock(); });
    if (!rollback) {
        state_cache_.mark_deferred_written(reserved_token);
        return;
    }
    dispatcher_->drop_batch(token);
    batches_.erase(token);
    if (dispatcher_->settled().empty())
        settle_by_ = never;
    invalidate_cache();
    handle_rollback(*rollback, now);
}

// ---- after the commit

void SinkTask::count_settled(int64 token, std::size_t count)
{
    const auto found = batches_.find(token);
    if (found == batches_.end())
        return;
    found->second.unsettled -= std::min(found->second.unsettled, count);
    if (found->second.unsettled == 0) {
        settled_batches_.push_back(token);
        batches_.erase(found);
    }
}

void SinkTask::apply_committed(const TransactionPlan& plan, TimePoint now)
{
    // A rejection for a batch that this relay has lost is not recorded; its queue is unblocked.
    for (std::size_t i = 0; i < plan.settled_count; ++i)
        if (const sink::SettledEvent& one = dispatcher_->settled()[i];
            !one.delivered && !batches_.contains(one.ref.token))
            dispatcher_->resume_behind(one, {});
    dispatcher_->forget_settled(plan.settled_count);
    if (dispatcher_->settled().empty())
        settle_by_ = never;
    for (const auto& [token, delivered] : plan.delivered) {
        // A settled retry may have unblocked the next message of its aggregate.
        if (const auto found = batches_.find(token);
            found != batches_.end() && !found->second.from_log)
            invalidate_cache();
        count_settled(token, delivered.count);
    }
    for (const TransactionPlan::Rejection& rejection : plan.rejections) {
        count_settled(rejection.event.ref.token, 1);
        std::vector<int64> ids;
        for (const sink::EventRef& ref : rejection.blocked) {
            count_settled(ref.token, 1);
            ids.push_back(ref.id);
        }
        dispatcher_->resume_behind(rejection.event, ids);
    }
    if (!plan.rejections.empty())
        invalidate_cache();
    for (const int64 token : plan.renewals)
        if (const auto found = batches_.find(token); found != batches_.end())
            found->second.renew_at = now + lease_duration() / 3;
}

void SinkTask::send(SinkEventBuilder& sink_events, TimePoint now)
{
    if (sink_events.events().empty())
        return;
    const OpenBatch new_batch = {sink_events.events().size(), now + lease_duration() / 3,
                                 !sink_events.is_from_retries()};
    batches_.emplace(sink_events.events().front()->token, new_batch);
    std::size_t count = 0;
    for (std::unique_ptr<sink::Event>& event : sink_events.events()) {
        dispatcher_->add(std::move(event));
        if (++count % events_per_send == 0)
            dispatcher_->send_unless_batching(now);
    }
    sink_events.events().clear();
}

void SinkTask::handle_rollback(const Rollback& rollback, TimePoint now)
{
    const int sqlstate = rollback.sqlstate;
    if (sqlstate == lease_lost || sqlstate == token_unknown || sqlstate == id_not_in_batch) {
        drop_lost_batches();
        return;
    }
    retry_at_ = now + pause_after_error;
    transaction_error_ = rollback.message;
    pg::log_rate_limited(WARNING, "sink \"" + definition_.name + "\": " + rollback.message);
}

// Drops batches whose leases were lost, because another session moved the cursor or dropped the
// consumer; all batches if no lease was. Reads the leases in a transaction of its own.
void SinkTask::drop_lost_batches()
{
    std::vector<int64> tokens;
    for (const auto& [token, batch] : batches_)
        tokens.push_back(token);
    std::vector<int64> open;
    open.reserve(tokens.size());
    // If this fails, all batches count as lost: the next claim takes over the ones that are open.
    if (in_transaction(activity_.c_str(), [&] {
            for (const Lease& lease : open_leases(tokens))
                open.push_back(lease.token);
        }))
        open.clear();
    // All leases are held, so the error has another cause: drop all batches, to be taken over.
    if (open.size() == tokens.size())
        open.clear();
    for (const int64 token : tokens)
        if (std::ranges::find(open, token) == open.end()) {
            dispatcher_->drop_batch(token);
            batches_.erase(token);
        }
    if (dispatcher_->settled().empty())
        settle_by_ = never;
    retry_at_ = sink::Clock::now() + pause_after_lost_lease;
    invalidate_cache();
    pg::log_rate_limited(LOG, "sink \"" + definition_.name +
                                  "\" was moved: its open batches are dropped");
}

void SinkTask::release_batches()
{
    TransactionPlan plan = make_plan(sink::Clock::now(), true, false);
    plan.renewals.clear();
    const auto rollback = in_transaction(activity_.c_str(), [&] {
        write_settlements(plan, *dispatcher_, batches_, definition_.consumer);
        for (const Lease& lease : open_leases(plan.open_batches))
            release_batch(lease.token);
    });
    // Batches that are not released are taken over by the next claim.
    if (rollback)
        pg::log_rate_limited(LOG, "sink \"" + definition_.name +
                                      "\" could not release its batches: " + rollback->message);
    dispatcher_->cancel_all();
    batches_.clear();
    settle_by_ = never;
    invalidate_cache();
}

void SinkTask::close()
{
    if (!batches_.empty())
        release_batches();
    remove_sink_status(definition_.consumer);
}

// ---- timing

TimePoint SinkTask::next_run_at() const
{
    const TimePoint now = sink::Clock::now();
    TimePoint next = status_reporter_.next_publish_at();
    if (const auto poll_at = dispatcher_->next_poll_at())
        next = std::min(next, *poll_at);
    if (now < retry_at_)
        return std::min(next, retry_at_);
    if (should_settle(now) || should_claim(now, memory_limit_))
        return now;
    next = std::min({next, next_check_, settle_by_, flush_by_});
    if (may_have_messages_ && now < claim_at_)
        next = std::min(next, claim_at_);
    if (dispatcher_->is_backing_off(now))
        next = std::min(next, dispatcher_->resume_at());
    for (const auto& [token, batch] : batches_)
        next = std::min(next, batch.renew_at);
    return next;
}

} // namespace outbox
