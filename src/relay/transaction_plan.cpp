#include "relay/transaction_plan.hpp"

#include "delivery/deliver_batch.hpp"
#include "delivery/settle.hpp"
#include "pg/encoding.hpp"

namespace outbox {

namespace {

void note_blocked(std::vector<sink::EventRef>& blocked, int64 token, IdRanges ids)
{
    for (const IdRange& range : ids)
        for (Id id = range.from; id < range.upto; ++id)
            blocked.push_back({token, id});
}

// Adds the plan's delivered events to the statistics, at commit.
void count_delivered(const TransactionPlan& plan, const sink::Dispatcher& dispatcher,
                     const OpenBatches& batches, int32 consumer)
{
    const TimestampTz now = GetCurrentTimestamp();
    const std::vector<sink::SettledEvent>& settled = dispatcher.settled();
    for (std::size_t i = 0; i < plan.settled_count; ++i)
        if (const sink::SettledEvent& one = settled[i];
            one.delivered && batches.contains(one.ref.token))
            stats::count_delivered(
                consumer,
                {one.event_stats.type, one.event_stats.bytes, one.event_stats.occurred_at}, now);
}

// Fails the event in the tables, moves blocked events behind it, also of other batches, to
// _outbox.retries, and adds those to rejection.blocked.
void write_rejection(TransactionPlan::Rejection& rejection)
{
    const sink::EventRef ref = rejection.event.ref;
    const Failure failure = {pg::error_text_from_utf8(rejection.event.reason), std::nullopt, false};
    const FailResult failed = fail_messages(ref.token, {&ref.id, 1}, {&failure, 1});
    note_blocked(rejection.blocked, ref.token, failed.blocked);
    for (const auto& [token, ids] : rejection.behind)
        if (token != ref.token)
            note_blocked(rejection.blocked, token, block_behind(token, ids));
}

} // namespace

// Collects ids only for batches that are delivered in part: a whole batch is settled by its token.
void plan_settlements(TransactionPlan& plan, const sink::Dispatcher& dispatcher,
                      const OpenBatches& batches, bool ordered)
{
    const std::vector<sink::SettledEvent>& settled = dispatcher.settled();
    plan.settled_count = settled.size();
    for (const sink::SettledEvent& one : settled)
        if (one.delivered && batches.contains(one.ref.token))
            ++plan.delivered[one.ref.token].count;
    for (auto& [token, delivered] : plan.delivered)
        if (delivered.count < batches.at(token).unsettled)
            delivered.ids.reserve(delivered.count);
    for (const sink::SettledEvent& one : settled) {
        if (!batches.contains(one.ref.token))
            continue;
        if (one.delivered) {
            TransactionPlan::Delivered& delivered = plan.delivered[one.ref.token];
            if (delivered.ids.capacity() > 0)
                delivered.ids.push_back(one.ref.id);
            continue;
        }
        TransactionPlan::Rejection rejection;
        rejection.event = one;
        if (ordered)
            for (const sink::EventRef& ref : dispatcher.events_behind(one))
                rejection.behind[ref.token].push_back(ref.id);
        plan.rejections.push_back(std::move(rejection));
    }
}

void write_settlements(TransactionPlan& plan, const sink::Dispatcher& dispatcher,
                       const OpenBatches& batches, int32 consumer)
{
    if (!plan.delivered_whole.empty())
        ack_whole_batches(plan.delivered_whole);
    for (const auto& [token, delivered] : plan.delivered) {
        const OpenBatch& batch = batches.at(token);
        const std::span<const int64> some = delivered.ids;
        const bool all = batch.unsettled == delivered.count;
        if (!(all && batch.from_log))
            ack_messages(token, all ? nullptr : &some, StatsBy::caller);
    }
    if (stats::is_enabled())
        count_delivered(plan, dispatcher, batches, consumer);
    for (TransactionPlan::Rejection& rejection : plan.rejections)
        write_rejection(rejection);
    for (const int64 token : plan.renewals)
        heartbeat(token, std::nullopt);
}

} // namespace outbox
