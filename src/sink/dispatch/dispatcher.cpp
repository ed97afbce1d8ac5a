#include "sink/dispatch/dispatcher.hpp"

#include "sink/dispatch/pipelined_dispatcher.hpp"
#include "sink/dispatch/serial_dispatcher.hpp"

#include <utility>

namespace outbox::sink {

namespace {

// While the sink is in trouble, so many parcels find out whether it still is: more than one, lest
// an event that is bad by itself is the only one to ask.
constexpr std::size_t probes = 2;

// So often an event may meet trouble that others do not meet.
constexpr int max_blame = 2;

// Even a retry at once leaves the sink a moment.
constexpr std::chrono::milliseconds shortest_pause{20};

} // namespace

std::unique_ptr<Dispatcher> make_dispatcher(std::unique_ptr<Sink> sink, bool ordered,
                                            const RetryPolicy& policy,
                                            Dispatcher::JitterSource chance)
{
    if (sink->preserves_order())
        return std::make_unique<PipelinedDispatcher>(std::move(sink), ordered, policy,
                                                     std::move(chance));
    return std::make_unique<SerialDispatcher>(std::move(sink), ordered, policy, std::move(chance));
}

Dispatcher::Dispatcher(std::unique_ptr<Sink> sink, bool ordered, const RetryPolicy& policy,
                       JitterSource chance)
    : sink_(std::move(sink)), ordered_(ordered), policy_(policy), chance_(std::move(chance))
{}

// Two aggregates that share a hash only wait for each other.
std::uint64_t Dispatcher::lane_of(const Event& event) const
{
    if (!ordered_)
        return static_cast<std::uint64_t>(event.id);
    const std::hash<std::string_view> hash;
    return hash(event.aggregate_type) * 31 + hash(event.aggregate_id);
}

void Dispatcher::work(TimePoint now)
{
    outcomes_.clear();
    sink_->work(outcomes_);
    for (const Outcome& outcome : outcomes_)
        arrive(outcome, now);
    send(now);
    if (std::exchange(is_to_start_, false))
        sink_->start();
}

void Dispatcher::send(TimePoint now)
{
    if (send_some(now))
        is_to_start_ = true;
}

void Dispatcher::send_early(TimePoint now)
{
    if (sink_->max_events_per_request() == 1)
        send(now);
}

std::size_t Dispatcher::may_be_on_the_way() const
{
    return troubles_ > 0 ? std::min(probes, sink_->capacity()) : sink_->capacity();
}

bool Dispatcher::may_send(TimePoint now) const
{
    return !gone_ && !finished_ && !is_backing_off(now) && sink_->is_ready() &&
           on_the_way_ < may_be_on_the_way();
}

Dispatcher::FailureHistory Dispatcher::failure_history_of(const Event& event) const
{
    return event.attempts > 1 ? FailureHistory{max_blame - 1, true, delivered_} : FailureHistory{};
}

bool Dispatcher::is_poison(FailureHistory& failure_history) const
{
    // Did others succeed since it failed the last time?
    if (failure_history.has_failed && delivered_ > failure_history.delivered_before)
        ++failure_history.blame;
    failure_history.has_failed = true;
    failure_history.delivered_before = delivered_;
    return failure_history.blame >= max_blame;
}

void Dispatcher::take_in(std::size_t bytes)
{
    ++in_hand_;
    bytes_ += bytes;
}

// Who has nothing in hand needs no memory for events.
void Dispatcher::let_go(std::unique_ptr<Event> event, std::size_t bytes)
{
    spare_events_.put(std::move(event), bytes);
    bytes_ -= bytes;
    if (--in_hand_ == 0)
        spare_events_.clear();
}

void Dispatcher::settle(const Handle& handle, std::uint64_t lane, bool delivered,
                        const std::string& reason, const EventStats& tally)
{
    settled_.push_back({handle, delivered, reason, lane, tally});
}

void Dispatcher::succeed()
{
    troubles_ = 0;
    resume_at_ = {};
}

void Dispatcher::back_off(const Outcome& outcome, TimePoint sent_at, TimePoint now)
{
    last_trouble_ = outcome.reason;
    // What was sent before the sink was known to be in trouble says nothing new.
    if (troubles_ == 0 || sent_at >= backed_off_at_) {
        ++troubles_;
        backed_off_at_ = now;
        const auto pause = std::chrono::microseconds(policy_.pause(troubles_, chance_()));
        const auto longest = std::chrono::microseconds(policy_.backoff_max);
        const Clock::duration least = std::min<Clock::duration>(
            shortest_pause * troubles_, std::max<Clock::duration>(longest, shortest_pause));
        resume_at_ = now + std::max<Clock::duration>(pause, least);
    }
    if (outcome.retry_after)
        asked_to_wait_ = std::max(asked_to_wait_, now + *outcome.retry_after);
}

void Dispatcher::forget_settled(std::size_t count)
{
    settled_.erase(settled_.begin(), settled_.begin() + static_cast<std::ptrdiff_t>(count));
}

void Dispatcher::abandon()
{
    sink_->abandon();
    forget_all();
    settled_.clear();
    spare_events_.clear();
    in_hand_ = on_the_way_ = bytes_ = 0;
}

std::optional<TimePoint> Dispatcher::next_work() const
{
    std::optional<TimePoint> next = sink_->next_work();
    const bool waits_for_the_end_of_a_pause = has_something_to_send() && resume_at() != TimePoint{};
    if (waits_for_the_end_of_a_pause && on_the_way_ < may_be_on_the_way())
        next = std::min(next.value_or(resume_at()), resume_at());
    return next;
}

} // namespace outbox::sink
