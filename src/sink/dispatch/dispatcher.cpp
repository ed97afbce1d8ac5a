#include "sink/dispatch/dispatcher.hpp"

#include "sink/dispatch/pipelined_dispatcher.hpp"
#include "sink/dispatch/serial_dispatcher.hpp"

#include <utility>

namespace outbox::sink {

namespace {

// Requests in flight while the sink is unavailable, to find out whether it is back. Two, because a
// single probe could be a poison event that fails forever.
constexpr std::size_t max_probes = 2;

// Isolated failures after which an event is poison. One failure can be a coincidence.
constexpr int max_isolated_failures = 2;

// Lower bound of the back-off per consecutive failure, even if the retry policy has 0: limits the
// rate of requests to a sink that fails at once.
constexpr std::chrono::milliseconds min_pause{20};

} // namespace

std::unique_ptr<Dispatcher> make_dispatcher(std::unique_ptr<Sink> sink, bool ordered,
                                            const RetryPolicy& policy,
                                            Dispatcher::JitterSource jitter)
{
    if (sink->preserves_order())
        return std::make_unique<PipelinedDispatcher>(std::move(sink), ordered, policy,
                                                     std::move(jitter));
    return std::make_unique<SerialDispatcher>(std::move(sink), ordered, policy, std::move(jitter));
}

Dispatcher::Dispatcher(std::unique_ptr<Sink> sink, bool ordered, const RetryPolicy& policy,
                       JitterSource jitter)
    : sink_(std::move(sink)), ordered_(ordered), policy_(policy), jitter_(std::move(jitter))
{}

// If two aggregates have the same hash, they share a queue and wait for each other; the order of
// each is still kept.
std::uint64_t Dispatcher::ordering_key_of(const Event& event) const
{
    if (!ordered_)
        return static_cast<std::uint64_t>(event.id);
    const std::hash<std::string_view> hash;
    return hash(event.aggregate_type) * 31 + hash(event.aggregate_id);
}

void Dispatcher::poll(TimePoint now)
{
    results_.clear();
    sink_->poll(results_);
    for (const DeliveryResult& result : results_)
        on_result(result, now);
    send(now);
    if (std::exchange(needs_flush_, false))
        sink_->flush();
}

void Dispatcher::send(TimePoint now)
{
    if (send_ready(now))
        needs_flush_ = true;
}

void Dispatcher::send_unless_batching(TimePoint now)
{
    if (sink_->max_events_per_request() == 1)
        send(now);
}

std::size_t Dispatcher::max_in_flight_now() const
{
    return consecutive_failures_ > 0 ? std::min(max_probes, sink_->max_in_flight())
                                     : sink_->max_in_flight();
}

bool Dispatcher::may_send(TimePoint now) const
{
    return !endpoint_gone_ && !sending_stopped_ && !is_backing_off(now) && sink_->can_send() &&
           in_flight_ < max_in_flight_now();
}

Dispatcher::FailureHistory Dispatcher::failure_history_of(const Event& event) const
{
    return event.attempts > 1 ? FailureHistory{max_isolated_failures - 1, true, delivered_}
                              : FailureHistory{};
}

bool Dispatcher::is_poison(FailureHistory& failure_history) const
{
    // A failure is isolated if other events were delivered since the previous one.
    if (failure_history.has_failed && delivered_ > failure_history.delivered_at_failure)
        ++failure_history.isolated_failures;
    failure_history.has_failed = true;
    failure_history.delivered_at_failure = delivered_;
    return failure_history.isolated_failures >= max_isolated_failures;
}

void Dispatcher::account(std::size_t bytes)
{
    ++claimed_;
    claimed_bytes_ += bytes;
}

// An idle dispatcher keeps no memory for events.
void Dispatcher::release(std::unique_ptr<Event> event, std::size_t bytes)
{
    event_pool_.release(std::move(event), bytes);
    claimed_bytes_ -= bytes;
    if (--claimed_ == 0)
        event_pool_.clear();
}

void Dispatcher::record_settled(const EventRef& ref, std::uint64_t ordering_key, bool delivered,
                                const std::string& reason, const EventStats& event_stats)
{
    settled_.push_back({ref, delivered, reason, ordering_key, event_stats});
}

void Dispatcher::end_back_off()
{
    consecutive_failures_ = 0;
    resume_at_ = {};
}

void Dispatcher::back_off(const DeliveryResult& result, TimePoint sent_at, TimePoint now)
{
    last_error_ = result.reason;
    // Failures of requests that were sent before the back-off began do not prolong it.
    if (consecutive_failures_ == 0 || sent_at >= backed_off_at_) {
        ++consecutive_failures_;
        backed_off_at_ = now;
        const auto pause =
            std::chrono::microseconds(policy_.backoff_after(consecutive_failures_, jitter_()));
        const auto max_pause = std::chrono::microseconds(policy_.backoff_max);
        const Clock::duration lower_bound = std::min<Clock::duration>(
            min_pause * consecutive_failures_, std::max<Clock::duration>(max_pause, min_pause));
        resume_at_ = now + std::max<Clock::duration>(pause, lower_bound);
    }
    if (result.retry_after)
        retry_after_until_ = std::max(retry_after_until_, now + *result.retry_after);
}

void Dispatcher::forget_settled(std::size_t count)
{
    settled_.erase(settled_.begin(), settled_.begin() + static_cast<std::ptrdiff_t>(count));
}

void Dispatcher::cancel_all()
{
    sink_->cancel_all();
    clear_all();
    settled_.clear();
    event_pool_.clear();
    claimed_ = in_flight_ = claimed_bytes_ = 0;
}

std::optional<TimePoint> Dispatcher::next_poll_at() const
{
    std::optional<TimePoint> next = sink_->next_poll_at();
    const bool waits_for_resume = has_sendable() && resume_at() != TimePoint{};
    if (waits_for_resume && in_flight_ < max_in_flight_now())
        next = std::min(next.value_or(resume_at()), resume_at());
    return next;
}

} // namespace outbox::sink
