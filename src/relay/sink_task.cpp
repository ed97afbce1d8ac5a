#include "relay/sink_task.hpp"

#include "delivery/retry_queue.hpp"
#include "delivery/settle.hpp"
#include "extension/fencing_token.hpp"
#include "extension/guc.hpp"
#include "extension/locks.hpp"
#include "extension/sqlstates.hpp"
#include "extension/worker_transaction.hpp"
#include "pg/encoding.hpp"
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

// What has been delivered is written down together with the next claim, or when there is so much of
// it, or as much as a quarter of what is claimed at once, or after so long. A crash repeats what
// is not written down.
constexpr std::size_t enough_to_settle = 256;
constexpr milliseconds longest_unsettled{10};

// So long after a transaction its commit is flushed, if nobody else has done so: behind what is
// sent, not in front of it.
constexpr milliseconds longest_unflushed{20};

// Of what was claimed, so many are sent before others are looked at: while they are in the fastest
// memory.
constexpr std::size_t some_at_once = 64;

// While somebody else has the consumer's lock.
constexpr milliseconds pause_while_busy{20};

// After a transaction that failed.
constexpr milliseconds pause_after_error{1000};

// Upcasters get no more than this part of the time: they run while other sinks wait.
constexpr int pause_after_upcasting = 9; // times as long
constexpr milliseconds much_upcasting{100};

// After a lease that was lost.
constexpr milliseconds pause_after_loss{100};

milliseconds lease_length()
{
    return milliseconds(settings::lease);
}

void note_blocked(std::vector<sink::Handle>& blocked, int64 token, IdRanges ids)
{
    for (const IdRange& range : ids)
        for (Id id = range.from; id < range.upto; ++id)
            blocked.push_back({token, id});
}

} // namespace

SinkTask::SinkTask(SinkDefinition definition, std::unique_ptr<sink::Sink> sink)
    : definition_(std::move(definition)), activity_("relay to sink " + definition_.name),
      dispatcher_(sink::make_dispatcher(std::move(sink), definition_.ordered, definition_.policy,
                                        [] { return pg_prng_double(&pg_global_prng_state); })),
      metadata_(dispatcher_->metadata()),
      status_reporter_(definition_.consumer, definition_.tenant, definition_.name)
{}

void SinkTask::invalidate_cache()
{
    may_find_something_ = looks_for_retries_ = true;
    state_cache_.invalidate();
}

void SinkTask::turn(std::size_t memory)
{
    const TimePoint now = sink::Clock::now();
    dispatcher_->work(now);
    if (now >= next_look_) {
        next_look_ = now + milliseconds(settings::relay_interval);
        invalidate_cache();
    }
    if (is_to_hand_back(now))
        hand_back();
    memory_ = memory;
    const bool claims = is_to_claim(now, memory);
    const bool settles = is_to_settle(now);
    if (now >= retry_at_ && (claims || settles || is_to_renew(now))) {
        transact(now, settles, claims, memory);
        dispatcher_->work(sink::Clock::now());
        write_deferred_batch(now);
    }
    if (now >= flush_by_) {
        flush_by_ = never;
        pg::call([] { pg::flush_upto(pg::last_commit()); });
    }
    if (!dispatcher_->settled().empty() && settle_by_ == never)
        settle_by_ = now + longest_unsettled;
    status_reporter_.publish(*dispatcher_, problem_, now);
}

// ---- what is to be done

bool SinkTask::is_to_settle(TimePoint now) const
{
    const auto& settled = dispatcher_->settled();
    const auto was_rejected = [](const sink::SettledEvent& one) { return !one.delivered; };
    const std::size_t enough = std::max(enough_to_settle, dispatcher_->wanted() / 4);
    return !settled.empty() && (settled.size() >= enough || now >= settle_by_ ||
                                std::ranges::any_of(settled, was_rejected));
}

// Half of the memory, because a request on its way has a copy of its event.
bool SinkTask::is_to_claim(TimePoint now, std::size_t memory) const
{
    return may_find_something_ && now >= claim_at_ && dispatcher_->can_take_more(now) &&
           dispatcher_->bytes() < memory / 2;
}

bool SinkTask::is_to_renew(TimePoint now) const
{
    return std::ranges::any_of(batches_,
                               [&](const auto& one) { return one.second.renew_at <= now; });
}

// During a long pause others could use the memory, and nobody should have to keep leases alive.
bool SinkTask::is_to_hand_back(TimePoint now) const
{
    return dispatcher_->is_backing_off(now) && dispatcher_->on_the_way() == 0 &&
           !batches_.empty() && dispatcher_->resume_at() - now > lease_length() / 3;
}

// Of a batch that is delivered whole, nobody needs the ids.
void SinkTask::plan_settlements(Plan& plan) const
{
    const std::vector<sink::SettledEvent>& settled = dispatcher_->settled();
    plan.settled = settled.size();
    for (const sink::SettledEvent& one : settled)
        if (one.delivered && batches_.contains(one.handle.token))
            ++plan.delivered[one.handle.token].count;
    for (auto& [token, delivered] : plan.delivered)
        if (delivered.count < batches_.at(token).left)
            delivered.ids.reserve(delivered.count);
    for (const sink::SettledEvent& one : settled) {
        if (!batches_.contains(one.handle.token))
            continue;
        if (one.delivered) {
            Delivered& delivered = plan.delivered[one.handle.token];
            if (delivered.ids.capacity() > 0)
                delivered.ids.push_back(one.handle.id);
            continue;
        }
        Rejection rejection;
        rejection.settlement = one;
        if (definition_.ordered)
            for (const Handle& handle : dispatcher_->behind(one))
                rejection.behind[handle.token].push_back(handle.id);
        plan.rejections.push_back(std::move(rejection));
    }
}

SinkTask::Plan SinkTask::make_plan(TimePoint now, bool settles, bool claims) const
{
    Plan plan;
    plan.settled_before = settled_;
    if (settles)
        plan_settlements(plan);
    for (const auto& [token, batch] : batches_) {
        // A batch that ends in this transaction is not renewed; who rejects may end any.
        const auto delivered = plan.delivered.find(token);
        const bool ends =
            delivered != plan.delivered.end() && delivered->second.count == batch.left;
        (ends ? plan.settled_before : plan.in_hand).push_back(token);
        if (ends && batch.from_log)
            plan.ended.push_back(token);
        if (batch.renew_at <= now && !ends && plan.rejections.empty())
            plan.renewals.push_back(token);
    }
    std::ranges::sort(plan.settled_before);
    plan.wanted = claims ? dispatcher_->wanted() : 0;
    plan.looks_for_retries = claims && (looks_for_retries_ || !plan.rejections.empty());
    return plan;
}

// ---- the transaction

void SinkTask::transact(TimePoint now, bool settles, bool claims, std::size_t memory)
{
    Plan plan = make_plan(now, settles, claims);
    // Nobody but this worker acts on the claim, so nothing is lost with it in a crash, if only the
    // events in it are durable before they leave. It need not wait for a flush of its own.
    const auto commit = pg::has_synchronous_standbys() ? pg::Commit::durable : pg::Commit::soon;
    // Nor need it be written before its events leave, if there is nothing else to write.
    const bool may_defer_write =
        commit == pg::Commit::soon && plan.settled == 0 && plan.renewals.empty();
    SinkEventBuilder sink_events(memory / 2 - std::min(memory / 2, dispatcher_->bytes()), metadata_,
                                 plan.wanted, dispatcher_->event_pool());
    if (!plan.rejections.empty())
        state_cache_.invalidate();
    ClaimResult claimed;
    const auto rollback = pg::in_transaction(
        activity_.c_str(),
        [&] {
            settle(plan);
            if (plan.wanted > 0)
                claimed = claim_next(plan, may_defer_write, sink_events);
            if (plan.looks_for_retries)
                plan.next_retry =
                    next_retry_time(definition_.consumer, GetCurrentTimestamp()).value_or(DT_NOEND);
        },
        commit);
    if (rollback) {
        state_cache_.invalidate();
        pg::call([] { pg::release_session_lock(); });
        recover(*rollback, now);
        return;
    }
    state_cache_.commit();
    problem_.clear();
    flush_by_ = now + longest_unflushed;
    pg::call([&] { pg::flush_upto(sink_events.flush_needed()); });
    if (claimed.count > 0)
        settled_.clear(); // the newest batch does not name them
    believe(plan, now);
    take(sink_events, now);
    if (claims)
        may_find_something_ = claimed.has_more || claimed.lock_busy;
    if (claimed.lock_busy)
        retry_at_ = now + pause_while_busy;
    if (plan.looks_for_retries) {
        const int64 interval = settings::relay_interval;
        const int64 due = plan.next_retry == DT_NOEND
                              ? interval
                              : (plan.next_retry - GetCurrentTimestamp()) / 1000 + 1;
        next_look_ = now + milliseconds(std::clamp<int64>(due, 1, interval));
        looks_for_retries_ = false;
    }
    // There are retries now, of which it knows nothing.
    if (claimed.failed > 0)
        invalidate_cache();
    if (const std::chrono::microseconds spent(claimed.upcasting_us); spent >= much_upcasting)
        claim_at_ = sink::Clock::now() + pause_after_upcasting * spent;
}

void SinkTask::settle(Plan& plan) const
{
    if (!plan.ended.empty())
        ack_whole_batches(plan.ended);
    for (const auto& [token, delivered] : plan.delivered) {
        const Batch& batch = batches_.at(token);
        const std::span<const int64> some = delivered.ids;
        const bool all = batch.left == delivered.count;
        if (!(all && batch.from_log))
            ack_messages(token, all ? nullptr : &some, StatsBy::caller);
    }
    if (stats::is_on())
        count_delivered(plan);
    for (Rejection& rejection : plan.rejections)
        reject(rejection);
    for (const int64 token : plan.renewals)
        heartbeat(token, std::nullopt);
}

void SinkTask::count_delivered(const Plan& plan) const
{
    const TimestampTz now = GetCurrentTimestamp();
    const std::vector<sink::SettledEvent>& settled = dispatcher_->settled();
    for (std::size_t i = 0; i < plan.settled; ++i)
        if (const sink::SettledEvent& one = settled[i];
            one.delivered && batches_.contains(one.handle.token))
            stats::count_delivered(definition_.consumer,
                                   {one.tally.type, one.tally.bytes, one.tally.occurred_at}, now);
}

void SinkTask::reject(Rejection& rejection)
{
    const Handle handle = rejection.settlement.handle;
    const Failure failure = {pg::text_from_utf8(rejection.settlement.reason), std::nullopt, false};
    const FailResult failed = fail_messages(handle.token, {&handle.id, 1}, {&failure, 1});
    note_blocked(rejection.blocked, handle.token, failed.blocked);
    for (const auto& [token, ids] : rejection.behind)
        if (token != handle.token)
            note_blocked(rejection.blocked, token, block_behind(token, ids));
}

ClaimResult SinkTask::claim_next(const Plan& plan, bool may_defer_write,
                                 SinkEventBuilder& sink_events) const
{
    constexpr int64 microseconds = 1000;
    sink_events.start();
    const RelayBatches known = {definition_.consumer, plan.in_hand, plan.settled_before,
                                state_cache_, may_defer_write};
    const ClaimRequest request = {
        PointerGetDatum(cstring_to_text(definition_.name.c_str())),
        static_cast<int>(plan.wanted),
        settings::lease * microseconds,
        PointerGetDatum(cstring_to_text(psprintf("outbox relay (pid %d)", MyProcPid))),
        false,
        &known};
    return claim_with_upcasting(request, sink_events);
}

// Behind what it is about, whose events are on the way. If it cannot be written they are claimed
// again, as after a crash.
void SinkTask::write_deferred_batch(TimePoint now)
{
    const DeferredBatch* deferred_batch = state_cache_.deferred_batch();
    if (deferred_batch == nullptr)
        return;
    const int64 token = deferred_batch->batch.token;
    int64 reserved_token = 0;
    const auto rollback = pg::in_transaction(
        activity_.c_str(),
        [&] {
            pg::injection_point("unwritten");
            add_newest_batch(deferred_batch->consumer, deferred_batch->batch,
                             &deferred_batch->holder, deferred_batch->progress);
            reserved_token = draw_tokens(1);
        },
        pg::Commit::soon);
    pg::call([] { pg::release_session_lock(); });
    if (!rollback) {
        state_cache_.mark_deferred_written(reserved_token);
        return;
    }
    dispatcher_->drop_batch(token);
    batches_.erase(token);
    if (dispatcher_->settled().empty())
        settle_by_ = never;
    invalidate_cache();
    recover(*rollback, now);
}

// ---- and afterwards

void SinkTask::count_down(int64 token, std::size_t count)
{
    const auto found = batches_.find(token);
    if (found == batches_.end())
        return;
    found->second.left -= std::min(found->second.left, count);
    if (found->second.left == 0) {
        settled_.push_back(token);
        batches_.erase(found);
    }
}

void SinkTask::believe(const Plan& plan, TimePoint now)
{
    // One whose batch is gone is nobody's to write down, and holds up nobody.
    for (std::size_t i = 0; i < plan.settled; ++i)
        if (const sink::SettledEvent& one = dispatcher_->settled()[i];
            !one.delivered && !batches_.contains(one.handle.token))
            dispatcher_->resume_behind(one, {});
    dispatcher_->forget_settled(plan.settled);
    if (dispatcher_->settled().empty())
        settle_by_ = never;
    for (const auto& [token, delivered] : plan.delivered) {
        // What waited behind a retry may have its turn now.
        if (const auto found = batches_.find(token);
            found != batches_.end() && !found->second.from_log)
            invalidate_cache();
        count_down(token, delivered.count);
    }
    for (const Rejection& rejection : plan.rejections) {
        count_down(rejection.settlement.handle.token, 1);
        std::vector<int64> ids;
        for (const Handle& handle : rejection.blocked) {
            count_down(handle.token, 1);
            ids.push_back(handle.id);
        }
        dispatcher_->resume_behind(rejection.settlement, ids);
    }
    if (!plan.rejections.empty())
        invalidate_cache();
    for (const int64 token : plan.renewals)
        if (const auto found = batches_.find(token); found != batches_.end())
            found->second.renew_at = now + lease_length() / 3;
}

void SinkTask::take(SinkEventBuilder& sink_events, TimePoint now)
{
    if (sink_events.events().empty())
        return;
    const Batch fresh = {sink_events.events().size(), now + lease_length() / 3,
                         !sink_events.is_from_retries()};
    batches_.emplace(sink_events.events().front()->token, fresh);
    std::size_t count = 0;
    for (std::unique_ptr<sink::Event>& event : sink_events.events()) {
        dispatcher_->add(std::move(event));
        if (++count % some_at_once == 0)
            dispatcher_->send_early(now);
    }
    sink_events.events().clear();
}

void SinkTask::recover(const pg::Rollback& rollback, TimePoint now)
{
    const int sqlstate = rollback.sqlstate;
    if (sqlstate == pg::lease_lost || sqlstate == pg::token_unknown ||
        sqlstate == pg::id_not_in_batch) {
        drop_lost_batches();
        return;
    }
    retry_at_ = now + pause_after_error;
    problem_ = rollback.message;
    pg::log_line(WARNING, "sink \"" + definition_.name + "\": " + rollback.message);
}

// Somebody has moved or dropped the consumer under our hands.
void SinkTask::drop_lost_batches()
{
    std::vector<int64> tokens;
    for (const auto& [token, batch] : batches_)
        tokens.push_back(token);
    std::vector<int64> open;
    open.reserve(tokens.size());
    // If this fails, all count as lost: the next claim takes over what is left.
    if (pg::in_transaction(activity_.c_str(), [&] {
            for (const Lease& lease : open_leases(tokens))
                open.push_back(lease.token);
        }))
        open.clear();
    // If none was, something else is wrong with one of them: then all are dropped, and taken over.
    if (open.size() == tokens.size())
        open.clear();
    for (const int64 token : tokens)
        if (std::ranges::find(open, token) == open.end()) {
            dispatcher_->drop_batch(token);
            batches_.erase(token);
        }
    if (dispatcher_->settled().empty())
        settle_by_ = never;
    retry_at_ = sink::Clock::now() + pause_after_loss;
    invalidate_cache();
    pg::log_line(LOG,
                 "sink \"" + definition_.name + "\" was moved: what it had in hand is dropped");
}

void SinkTask::hand_back()
{
    Plan plan = make_plan(sink::Clock::now(), true, false);
    plan.renewals.clear();
    const auto rollback = pg::in_transaction(activity_.c_str(), [&] {
        settle(plan);
        for (const Lease& lease : open_leases(plan.in_hand))
            release_batch(lease.token);
    });
    // What is not handed back is taken over by the next claim all the same.
    if (rollback)
        pg::log_line(LOG,
                     "sink \"" + definition_.name + "\" hands nothing back: " + rollback->message);
    dispatcher_->abandon();
    batches_.clear();
    settle_by_ = never;
    invalidate_cache();
}

void SinkTask::close()
{
    if (!batches_.empty())
        hand_back();
    remove_sink_status(definition_.consumer);
}

// ---- when

TimePoint SinkTask::next_turn() const
{
    const TimePoint now = sink::Clock::now();
    TimePoint next = status_reporter_.next();
    if (const auto work = dispatcher_->next_work())
        next = std::min(next, *work);
    if (now < retry_at_)
        return std::min(next, retry_at_);
    if (is_to_settle(now) || is_to_claim(now, memory_))
        return now;
    next = std::min({next, next_look_, settle_by_, flush_by_});
    if (may_find_something_ && now < claim_at_)
        next = std::min(next, claim_at_);
    if (dispatcher_->is_backing_off(now))
        next = std::min(next, dispatcher_->resume_at());
    for (const auto& [token, batch] : batches_)
        next = std::min(next, batch.renew_at);
    return next;
}

} // namespace outbox
