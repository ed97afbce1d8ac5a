#include "sink/dispatch/serial_dispatcher.hpp"

#include <utility>

namespace outbox::sink {

namespace {

// Bounds for the number of events that are claimed at a time.
constexpr std::size_t min_window = 256;
constexpr std::size_t max_window = 10000;

} // namespace

void SerialDispatcher::add(std::unique_ptr<Event> event)
{
    account(event->size());
    const std::uint64_t key = ordering_key_of(*event);
    auto item = std::make_unique<Item>();
    item->failure_history = failure_history_of(*event);
    item->event = std::move(event);
    queues_[key].items.push(std::move(item));
    add_to_ready_if_sendable(key);
}

// Appends the queue to ready_ if it can send and is not there. Removes an empty, unblocked queue:
// references to it are invalid then. Does nothing if there is no such queue.
void SerialDispatcher::add_to_ready_if_sendable(std::uint64_t key)
{
    const auto found = queues_.find(key);
    if (found == queues_.end())
        return;
    AggregateQueue& queue = found->second;
    if (queue.items.empty() && !queue.blocked) {
        queues_.erase(found);
    } else if (queue.can_send() && !queue.is_in_ready) {
        queue.is_in_ready = true;
        ready_.push_back(key);
    }
}

// ---- sending

bool SerialDispatcher::send_ready(TimePoint now)
{
    const RequestId first = next_request_id_;
    while (may_send(now) && has_sendable()) {
        // During a back-off, new and repeated requests alternate: a repeated one may be poison and
        // must not be the only probe.
        const bool takes_requeued =
            !requeued_.empty() &&
            (ready_.empty() || consecutive_failures_ == 0 || next_request_id_ % 2 == 0);
        DeliveryRequest request;
        if (takes_requeued) {
            request = std::move(requeued_.front());
            requeued_.pop_front();
        } else {
            request = build_request();
        }
        request.sent_at = now;
        if (!request.slices.empty())
            send(std::move(request));
    }
    return next_request_id_ != first;
}

// Passes the request to the sink, and applies the result if it is known at once.
void SerialDispatcher::send(DeliveryRequest request)
{
    std::vector<const Event*> events;
    for (const Slice& slice : request.slices) {
        AggregateQueue& queue = queues_.at(slice.key);
        queue.in_requeued_request = false;
        queue.in_flight = slice.count;
        for (std::size_t i = 0; i < slice.count; ++i)
            events.push_back(queue.items[i].event.get());
    }
    const RequestId id = next_request_id_++;
    const TimePoint sent_at = request.sent_at;
    requests_.emplace(id, std::move(request));
    ++in_flight_;
    if (const auto result = sink_->send(id, events, 0))
        on_result(*result, sent_at);
}

// Returns how many of the first items go into a request with `room` for events. An item with
// send_alone shares no request.
std::size_t SerialDispatcher::slice_size(const AggregateQueue& queue, std::size_t room)
{
    if (queue.items.front().send_alone)
        return 1;
    std::size_t count = 0;
    while (count < queue.items.size() && count < room && !queue.items[count].send_alone)
        ++count;
    return count;
}

// Fills a request from as many ready queues as there is room for. During a back-off a request has
// one event, so that a failure can be attributed to it. Takes the queues from ready_. No slices: no
// queue can send.
SerialDispatcher::DeliveryRequest SerialDispatcher::build_request()
{
    const std::size_t room = consecutive_failures_ > 0 ? 1 : sink_->max_events_per_request();
    DeliveryRequest request;
    bool send_alone = false;
    for (std::size_t count = 0; !send_alone && count < room && !ready_.empty();) {
        const std::uint64_t key = ready_.front();
        const auto found = queues_.find(key);
        // The queue may have been emptied or blocked since it was added to ready_.
        if (found == queues_.end() || !found->second.can_send()) {
            ready_.pop_front();
            continue;
        }
        AggregateQueue& queue = found->second;
        send_alone = queue.items.front().send_alone;
        if (send_alone && count > 0)
            break;
        ready_.pop_front();
        queue.is_in_ready = false;
        request.slices.push_back({key, slice_size(queue, room - count)});
        count += request.slices.back().count;
    }
    return request;
}

// ---- results

void SerialDispatcher::on_result(const DeliveryResult& result, TimePoint now)
{
    const auto found = requests_.find(result.request_id);
    if (found == requests_.end())
        return;
    DeliveryRequest request = std::move(found->second);
    requests_.erase(found);
    --in_flight_;
    for (const Slice& slice : request.slices)
        queues_.at(slice.key).in_flight = 0;
    switch (classify(request, result)) {
    case DeliveryStatus::delivered:
        end_back_off();
        record_request_settled(request, true, {});
        break;
    case DeliveryStatus::rejected:
        request.has_several_events() ? split(request)
                                     : record_request_settled(request, false, result.reason);
        break;
    case DeliveryStatus::endpoint_gone:
        endpoint_gone_ = last_error_ = result.reason;
        requeue(std::move(request));
        break;
    case DeliveryStatus::unavailable:
        back_off(result, request.sent_at, now);
        requeue(std::move(request));
        break;
    case DeliveryStatus::not_sent:
        requeue(std::move(request));
        break;
    }
}

// Returns the status of the result, but `rejected` for poison. Adds a failure that may be the
// event's fault to the history of the event or, if it has several events, of the request.
DeliveryStatus SerialDispatcher::classify(DeliveryRequest& request, const DeliveryResult& result)
{
    if (result.status != DeliveryStatus::unavailable || !result.may_be_event_fault)
        return result.status;
    FailureHistory& failure_history =
        request.has_several_events()
            ? request.failure_history
            : queues_.at(request.slices.front().key).items.front().failure_history;
    return is_poison(failure_history) ? DeliveryStatus::rejected : DeliveryStatus::unavailable;
}

// Records the result of all events of a request and removes them, and all others with lease_lost,
// from their queues. Queues that can send are added to ready_.
void SerialDispatcher::record_request_settled(const DeliveryRequest& request, bool delivered,
                                              const std::string& reason)
{
    for (const Slice& slice : request.slices) {
        AggregateQueue& queue = queues_.at(slice.key);
        for (std::size_t i = 0; i < slice.count; ++i)
            record_front_settled(slice.key, queue, delivered, reason);
        remove_lease_lost(slice.key);
    }
}

// Removes the items with lease_lost, then calls add_to_ready_if_sendable(). Nothing of the queue
// may be in flight.
void SerialDispatcher::remove_lease_lost(std::uint64_t key)
{
    AggregateQueue& queue = queues_.at(key);
    for (std::size_t i = queue.items.size(); i-- > 0;)
        if (queue.items[i].lease_lost)
            remove(queue, i);
    add_to_ready_if_sendable(key);
}

// Returns the events of a request to their queues, to be sent again. A request with several events
// is kept in requeued_ instead, and so is its webhook-id, unless some have lost their lease.
void SerialDispatcher::requeue(DeliveryRequest request)
{
    const auto has_lease_lost = [&](const Slice& slice) {
        const StableQueue<Item>& items = queues_.at(slice.key).items;
        for (std::size_t i = 0; i < slice.count; ++i)
            if (items[i].lease_lost)
                return true;
        return false;
    };
    if (!request.has_several_events() || std::ranges::any_of(request.slices, has_lease_lost)) {
        for (const Slice& slice : request.slices)
            remove_lease_lost(slice.key);
        return;
    }
    for (const Slice& slice : request.slices)
        queues_.at(slice.key).in_requeued_request = true;
    requeued_.push_back(std::move(request));
}

// Returns the events of a request to their queues, each to be sent alone: to find the one at fault
// for a rejection.
void SerialDispatcher::split(const DeliveryRequest& request)
{
    for (const Slice& slice : request.slices) {
        AggregateQueue& queue = queues_.at(slice.key);
        queue.in_requeued_request = false;
        for (std::size_t i = 0; i < slice.count; ++i)
            queue.items[i].send_alone = true;
        remove_lease_lost(slice.key);
    }
}

// Counts and removes the first event and records its result, unless its lease is lost. A recorded
// rejection blocks the queue, a recorded delivery unblocks it.
void SerialDispatcher::record_front_settled(std::uint64_t key, AggregateQueue& queue,
                                            bool delivered, const std::string& reason)
{
    const Item& item = queue.items.front();
    delivered ? ++delivered_ : ++rejected_;
    if (!item.lease_lost) {
        record_settled({item.event->token, item.event->id}, key, delivered, reason,
                       item.event->event_stats);
        queue.blocked = !delivered;
    }
    remove(queue, 0);
}

// Removes an item from its queue and from the counts, and returns its event to the pool.
void SerialDispatcher::remove(AggregateQueue& queue, std::size_t index)
{
    std::unique_ptr<Item> item = queue.items.extract(index);
    const std::size_t bytes = item->event->size();
    release(std::move(item->event), bytes);
}

// ---- decisions of the relay

std::vector<EventRef> SerialDispatcher::events_behind(const SettledEvent& rejected) const
{
    std::vector<EventRef> refs;
    const auto found = queues_.find(rejected.ordering_key);
    if (found != queues_.end())
        for (std::size_t i = 0; i < found->second.items.size(); ++i) {
            const Event& event = *found->second.items[i].event;
            refs.push_back({event.token, event.id});
        }
    return refs;
}

void SerialDispatcher::resume_behind(const SettledEvent& rejected,
                                     std::span<const std::int64_t> blocked_ids)
{
    const auto found = queues_.find(rejected.ordering_key);
    if (found == queues_.end())
        return;
    AggregateQueue& queue = found->second;
    for (std::size_t i = queue.items.size(); i-- > 0;)
        if (std::ranges::find(blocked_ids, queue.items[i].event->id) != blocked_ids.end())
            remove(queue, i);
    queue.blocked = false;
    add_to_ready_if_sendable(rejected.ordering_key);
}

void SerialDispatcher::drop_batch(std::int64_t token)
{
    std::erase_if(settled_, [&](const SettledEvent& s) { return s.ref.token == token; });
    // Requeued requests may contain events of the batch.
    for (const DeliveryRequest& request : std::exchange(requeued_, {}))
        split(request);
    std::vector<std::uint64_t> touched;
    for (auto& [key, queue] : queues_) {
        for (std::size_t i = queue.items.size(); i-- > 0;) {
            if (queue.items[i].event->token != token)
                continue;
            if (i < queue.in_flight)
                queue.items[i].lease_lost = true;
            else
                remove(queue, i);
        }
        touched.push_back(key);
    }
    for (const std::uint64_t key : touched) {
        // The rejection that blocked the queue may have been one of the dropped results.
        queues_.at(key).blocked =
            std::any_of(settled_.begin(), settled_.end(), [&](const SettledEvent& s) {
                return !s.delivered && s.ordering_key == key;
            });
        add_to_ready_if_sendable(key);
    }
}

void SerialDispatcher::clear_all()
{
    queues_.clear();
    ready_.clear();
    requeued_.clear();
    requests_.clear();
}

// ---- claiming

std::size_t SerialDispatcher::claim_size() const
{
    return std::clamp(sink_->max_in_flight() * sink_->max_events_per_request() * 4, min_window,
                      max_window);
}

// Returns true if the first event of some queue has not failed yet. Such an event can probe the
// sink; an event that has failed may be poison.
bool SerialDispatcher::has_queue_without_failure() const
{
    return std::ranges::any_of(queues_, [](const auto& entry) {
        const AggregateQueue& queue = entry.second;
        return !queue.items.empty() && !queue.in_requeued_request &&
               !queue.items.front().failure_history.has_failed;
    });
}

bool SerialDispatcher::needs_more() const
{
    if (consecutive_failures_ > 0)
        return claimed_ < claim_size() && !has_queue_without_failure();
    // Claims more if few queues have many events: a hot aggregate must not delay the others.
    const bool has_few_queues =
        queues_.size() < sink_->max_in_flight() * sink_->max_events_per_request();
    return claimed_ < (has_few_queues ? max_window : claim_size() / 2);
}

} // namespace outbox::sink
