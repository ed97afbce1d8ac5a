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

void note_parked(std::vector<sink::Handle>& parked, int64 token, IdRanges ids)
{
    for (const IdRange& range : ids)
        for (Id id = range.from; id < range.upto; ++id)
            parked.push_back({token, id});
}

} // namespace

Route::Route(SinkDefinition definition, std::unique_ptr<sink::Sink> sink)
    : definition_(std::move(definition)), activity_("relay to sink " + definition_.name),
      courier_(sink::make_courier(std::move(sink), definition_.ordered, definition_.policy,
                                  [] { return pg_prng_double(&pg_global_prng_state); })),
      metadata_(courier_->metadata()),
      bulletin_(definition_.consumer, definition_.tenant, definition_.name)
{}

void Route::look_closely()
{
    may_find_something_ = looks_for_retries_ = true;
    kept_.forget();
}

void Route::turn(std::size_t memory)
{
    const TimePoint now = sink::Clock::now();
    courier_->work(now);
    if (now >= next_look_) {
        next_look_ = now + milliseconds(settings::relay_interval);
        look_closely();
    }
    if (is_to_hand_back(now))
        hand_back();
    memory_ = memory;
    const bool claims = is_to_claim(now, memory);
    const bool settles = is_to_settle(now);
    if (now >= retry_at_ && (claims || settles || is_to_renew(now))) {
        transact(now, settles, claims, memory);
        courier_->work(sink::Clock::now());
        write_down_claim(now);
    }
    if (now >= flush_by_) {
        flush_by_ = never;
        pg::call([] { pg::flush_upto(pg::last_commit()); });
    }
    if (!courier_->settled().empty() && settle_by_ == never)
        settle_by_ = now + longest_unsettled;
    bulletin_.publish(*courier_, problem_, now);
}

// ---- what is to be done

bool Route::is_to_settle(TimePoint now) const
{
    const auto& settled = courier_->settled();
    const auto was_rejected = [](const sink::Settlement& one) { return !one.delivered; };
    const std::size_t enough = std::max(enough_to_settle, courier_->wanted() / 4);
    return !settled.empty() && (settled.size() >= enough || now >= settle_by_ ||
                                std::ranges::any_of(settled, was_rejected));
}

// Half of the memory, because a request on its way has a copy of its event.
bool Route::is_to_claim(TimePoint now, std::size_t memory) const
{
    return may_find_something_ && now >= claim_at_ && courier_->wants_more(now) &&
           courier_->bytes() < memory / 2;
}

bool Route::is_to_renew(TimePoint now) const
{
    return std::ranges::any_of(batches_,
                               [&](const auto& one) { return one.second.renew_at <= now; });
}

// During a long pause others could use the memory, and nobody should have to keep leases alive.
bool Route::is_to_hand_back(TimePoint now) const
{
    return courier_->is_backing_off(now) && courier_->on_the_way() == 0 && !batches_.empty() &&
           courier_->resume_at() - now > lease_length() / 3;
}

// Of a batch that is delivered whole, nobody needs the ids.
void Route::plan_settlements(Plan& plan) const
{
    const std::vector<sink::Settlement>& settled = courier_->settled();
    plan.settled = settled.size();
    for (const sink::Settlement& one : settled)
        if (one.delivered && batches_.contains(one.handle.token))
            ++plan.delivered[one.handle.token].count;
    for (auto& [token, delivered] : plan.delivered)
        if (delivered.count < batches_.at(token).left)
            delivered.ids.reserve(delivered.count);
    for (const sink::Settlement& one : settled) {
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
            for (const Handle& handle : courier_->behind(one))
                rejection.behind[handle.token].push_back(handle.id);
        plan.rejections.push_back(std::move(rejection));
    }
}

Route::Plan Route::make_plan(TimePoint now, bool settles, bool claims) const
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
    plan.wanted = claims ? courier_->wanted() : 0;
    plan.looks_for_retries = claims && (looks_for_retries_ || !plan.rejections.empty());
    return plan;
}

// ---- the transaction

void Route::transact(TimePoint now, bool settles, bool claims, std::size_t memory)
{
    Plan plan = make_plan(now, settles, claims);
    // Nobody but this worker acts on the claim, so nothing is lost with it in a crash, if only the
    // events in it are durable before they leave. It need not wait for a flush of its own.
    const auto commit = pg::has_synchronous_standbys() ? pg::Commit::durable : pg::Commit::soon;
    // Nor need it be written before its events leave, if there is nothing else to write.
    const bool may_write_later =
        commit == pg::Commit::soon && plan.settled == 0 && plan.renewals.empty();
    Outgoing outgoing(memory / 2 - std::min(memory / 2, courier_->bytes()), metadata_, plan.wanted,
                      courier_->spare_events());
    if (!plan.rejections.empty())
        kept_.forget();
    Claimed claimed;
    const auto rollback = pg::in_transaction(
        activity_.c_str(),
        [&] {
            settle(plan);
            if (plan.wanted > 0)
                claimed = claim_next(plan, may_write_later, outgoing);
            if (plan.looks_for_retries)
                plan.next_retry =
                    next_due(definition_.consumer, GetCurrentTimestamp()).value_or(DT_NOEND);
        },
        commit);
    if (rollback) {
        kept_.forget();
        pg::call([] { pg::let_go_of_consumer(); });
        recover(*rollback, now);
        return;
    }
    kept_.committed();
    problem_.clear();
    flush_by_ = now + longest_unflushed;
    pg::call([&] { pg::flush_upto(outgoing.flush_needed()); });
    if (claimed.count > 0)
        settled_.clear(); // the newest batch does not name them
    believe(plan, now);
    take(outgoing, now);
    if (claims)
        may_find_something_ = claimed.more || claimed.busy;
    if (claimed.busy)
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
        look_closely();
    if (const std::chrono::microseconds spent(claimed.upcasting_time); spent >= much_upcasting)
        claim_at_ = sink::Clock::now() + pause_after_upcasting * spent;
}

void Route::settle(Plan& plan) const
{
    if (!plan.ended.empty())
        ack_whole(plan.ended);
    for (const auto& [token, delivered] : plan.delivered) {
        const Batch& batch = batches_.at(token);
        const std::span<const int64> some = delivered.ids;
        const bool all = batch.left == delivered.count;
        if (!(all && batch.from_log))
            ack(token, all ? nullptr : &some, Counts::caller);
    }
    if (stats::is_on())
        count_delivered(plan);
    for (Rejection& rejection : plan.rejections)
        reject(rejection);
    for (const int64 token : plan.renewals)
        heartbeat(token, std::nullopt);
}

void Route::count_delivered(const Plan& plan) const
{
    const TimestampTz now = GetCurrentTimestamp();
    const std::vector<sink::Settlement>& settled = courier_->settled();
    for (std::size_t i = 0; i < plan.settled; ++i)
        if (const sink::Settlement& one = settled[i];
            one.delivered && batches_.contains(one.handle.token))
            stats::count_delivered(definition_.consumer,
                                   {one.tally.type, one.tally.bytes, one.tally.occurred_at}, now);
}

void Route::reject(Rejection& rejection)
{
    const Handle handle = rejection.settlement.handle;
    const Failure failure = {pg::text_from_utf8(rejection.settlement.reason), std::nullopt, false};
    const Failed failed = fail(handle.token, {&handle.id, 1}, {&failure, 1});
    note_parked(rejection.parked, handle.token, failed.parked);
    for (const auto& [token, ids] : rejection.behind)
        if (token != handle.token)
            note_parked(rejection.parked, token, park_behind(token, ids));
}

Claimed Route::claim_next(const Plan& plan, bool may_write_later, Outgoing& outgoing) const
{
    constexpr int64 microseconds = 1000;
    outgoing.start();
    const RelayBatches known = {definition_.consumer, plan.in_hand, plan.settled_before, kept_,
                                may_write_later};
    const ClaimRequest request = {
        PointerGetDatum(cstring_to_text(definition_.name.c_str())),
        static_cast<int>(plan.wanted),
        settings::lease * microseconds,
        PointerGetDatum(cstring_to_text(psprintf("outbox relay (pid %d)", MyProcPid))),
        false,
        &known};
    return claim_upcast(request, outgoing);
}

// Behind what it is about, whose events are on the way. If it cannot be written they are claimed
// again, as after a crash.
void Route::write_down_claim(TimePoint now)
{
    const UnwrittenBatch* unwritten = kept_.unwritten();
    if (unwritten == nullptr)
        return;
    const int64 token = unwritten->batch.token;
    int64 spare_token = 0;
    const auto rollback = pg::in_transaction(
        activity_.c_str(),
        [&] {
            pg::pause_at("unwritten");
            add_newest_batch(unwritten->consumer, unwritten->batch, &unwritten->holder,
                             unwritten->progress);
            spare_token = draw_tokens(1);
        },
        pg::Commit::soon);
    pg::call([] { pg::let_go_of_consumer(); });
    if (!rollback) {
        kept_.wrote_down(spare_token);
        return;
    }
    courier_->drop_batch(token);
    batches_.erase(token);
    if (courier_->settled().empty())
        settle_by_ = never;
    look_closely();
    recover(*rollback, now);
}

// ---- and afterwards

void Route::count_down(int64 token, std::size_t count)
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

void Route::believe(const Plan& plan, TimePoint now)
{
    // One whose batch is gone is nobody's to write down, and holds up nobody.
    for (std::size_t i = 0; i < plan.settled; ++i)
        if (const sink::Settlement& one = courier_->settled()[i];
            !one.delivered && !batches_.contains(one.handle.token))
            courier_->go_on_behind(one, {});
    courier_->forget_settled(plan.settled);
    if (courier_->settled().empty())
        settle_by_ = never;
    for (const auto& [token, delivered] : plan.delivered) {
        // What waited behind a retry may have its turn now.
        if (const auto found = batches_.find(token);
            found != batches_.end() && !found->second.from_log)
            look_closely();
        count_down(token, delivered.count);
    }
    for (const Rejection& rejection : plan.rejections) {
        count_down(rejection.settlement.handle.token, 1);
        std::vector<int64> ids;
        for (const Handle& handle : rejection.parked) {
            count_down(handle.token, 1);
            ids.push_back(handle.id);
        }
        courier_->go_on_behind(rejection.settlement, ids);
    }
    if (!plan.rejections.empty())
        look_closely();
    for (const int64 token : plan.renewals)
        if (const auto found = batches_.find(token); found != batches_.end())
            found->second.renew_at = now + lease_length() / 3;
}

void Route::take(Outgoing& outgoing, TimePoint now)
{
    if (outgoing.events().empty())
        return;
    const Batch fresh = {outgoing.events().size(), now + lease_length() / 3,
                         !outgoing.is_from_retries()};
    batches_.emplace(outgoing.events().front()->token, fresh);
    std::size_t count = 0;
    for (std::unique_ptr<sink::Event>& event : outgoing.events()) {
        courier_->add(std::move(event));
        if (++count % some_at_once == 0)
            courier_->send_early(now);
    }
    outgoing.events().clear();
}

void Route::recover(const pg::Rollback& rollback, TimePoint now)
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
void Route::drop_lost_batches()
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
            courier_->drop_batch(token);
            batches_.erase(token);
        }
    if (courier_->settled().empty())
        settle_by_ = never;
    retry_at_ = sink::Clock::now() + pause_after_loss;
    look_closely();
    pg::log_line(LOG,
                 "sink \"" + definition_.name + "\" was moved: what it had in hand is dropped");
}

void Route::hand_back()
{
    Plan plan = make_plan(sink::Clock::now(), true, false);
    plan.renewals.clear();
    const auto rollback = pg::in_transaction(activity_.c_str(), [&] {
        settle(plan);
        for (const Lease& lease : open_leases(plan.in_hand))
            release(lease.token);
    });
    // What is not handed back is taken over by the next claim all the same.
    if (rollback)
        pg::log_line(LOG,
                     "sink \"" + definition_.name + "\" hands nothing back: " + rollback->message);
    courier_->abandon();
    batches_.clear();
    settle_by_ = never;
    look_closely();
}

void Route::close()
{
    if (!batches_.empty())
        hand_back();
    take_off_board(definition_.consumer);
}

// ---- when

TimePoint Route::next_turn() const
{
    const TimePoint now = sink::Clock::now();
    TimePoint next = bulletin_.next();
    if (const auto work = courier_->next_work())
        next = std::min(next, *work);
    if (now < retry_at_)
        return std::min(next, retry_at_);
    if (is_to_settle(now) || is_to_claim(now, memory_))
        return now;
    next = std::min({next, next_look_, settle_by_, flush_by_});
    if (may_find_something_ && now < claim_at_)
        next = std::min(next, claim_at_);
    if (courier_->is_backing_off(now))
        next = std::min(next, courier_->resume_at());
    for (const auto& [token, batch] : batches_)
        next = std::min(next, batch.renew_at);
    return next;
}

} // namespace outbox
