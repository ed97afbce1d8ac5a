#include "sink/dispatch/pipelined_dispatcher.hpp"

#include <utility>

namespace outbox::sink {

namespace {

// Events to claim at a time, at least: fewer do not pay for the transaction. Larger claims would
// leave the sink idle during the transaction.
constexpr std::size_t min_claim_size = 1'000;

} // namespace

void PipelinedDispatcher::add(std::unique_ptr<Event> event)
{
    AggregateQueue& queue = queue_for(ordering_key_of(*event));
    Item& item = *append_item(queue);
    item.ref = {event->token, event->id};
    item.event_stats = event->event_stats;
    item.bytes = event->size();
    account(item.bytes);
    item.failure_history = failure_history_of(*event);
    item.event = std::move(event);
    advance(queue);
}

// Returns the queue of an ordering key. Adds one, reused or new, if there is none.
PipelinedDispatcher::AggregateQueue& PipelinedDispatcher::queue_for(std::uint64_t key)
{
    if (const auto found = queues_.find(key); found != queues_.end())
        return found->second;
    AggregateQueue* queue;
    if (spare_queues_.empty()) {
        queue = &queues_[key];
    } else {
        QueueMap::node_type spare = std::move(spare_queues_.back());
        spare_queues_.pop_back();
        spare.key() = key;
        queue = &queues_.insert(std::move(spare)).position->second;
    }
    queue->key = key;
    return *queue;
}

// Appends an empty item, reused or new, as unsent to the queue and returns it.
PipelinedDispatcher::Items::iterator PipelinedDispatcher::append_item(AggregateQueue& queue)
{
    if (spare_items_.empty())
        spare_items_.emplace_back();
    const Items::iterator item = spare_items_.begin();
    queue.items.splice(queue.items.end(), spare_items_, item);
    if (queue.unsent == queue.items.end())
        queue.unsent = item;
    return item;
}

// ---- sending

bool PipelinedDispatcher::send_ready(TimePoint now)
{
    bool has_sent = false;
    while (may_send(now) && !ready_.empty()) {
        AggregateQueue& queue = *ready_.front();
        ready_.pop_front();
        // The queue may have been emptied or blocked since it was added to ready_.
        while (may_send(now)) {
            const auto stream = sendable_stream(queue);
            if (!stream)
                break;
            send_next(queue, *stream, now);
            has_sent = true;
        }
        queue.is_in_ready = false;
        advance(queue);
    }
    return has_sent;
}

// Returns the stream for the next event if it may be sent: none of its queue is in flight, or the
// stream has delivered one of them, so that the sink keeps the order. std::nullopt: it has to wait.
std::optional<StreamId> PipelinedDispatcher::sendable_stream(AggregateQueue& queue) const
{
    if (!queue.can_send())
        return std::nullopt;
    const StreamId stream = sink_->stream_of(*queue.unsent->event);
    return queue.in_flight == 0 || stream == queue.confirmed_stream ? std::optional(stream)
                                                                    : std::nullopt;
}

// Sends the next event of a queue, and applies the result if it is known at once. is_in_ready stays
// set meanwhile, so that advance() does not add the queue to ready_ again: send_ready() goes on
// with it.
void PipelinedDispatcher::send_next(AggregateQueue& queue, StreamId stream, TimePoint now)
{
    const Items::iterator item = queue.unsent++;
    item->rejection_reason.reset(); // a repeated request gets a new result
    ++queue.in_flight;
    ++in_flight_;
    // Until this event is delivered, no other may follow in the previous stream.
    if (stream != queue.confirmed_stream)
        queue.confirmed_stream = 0;
    const RequestId id = requests_.insert({&queue, item, stream, now});
    const Event* events[] = {item->event.get()};
    if (const auto result = sink_->send(id, events, stream))
        on_result(*result, now);
}

// ---- results

void PipelinedDispatcher::on_result(const DeliveryResult& result, TimePoint now)
{
    if (requests_.find(result.request_id) == nullptr)
        return;
    const DeliveryRequest request = requests_.extract(result.request_id);
    AggregateQueue& queue = *request.queue;
    --in_flight_;
    --queue.in_flight;
    switch (result.status) {
    case DeliveryStatus::delivered:
        end_back_off();
        request.item->is_delivered = true;
        queue.confirmed_stream = request.stream;
        break;
    case DeliveryStatus::rejected:
        request.item->rejection_reason = result.reason;
        queue.needs_rewind = true;
        break;
    case DeliveryStatus::endpoint_gone:
        endpoint_gone_ = last_error_ = result.reason;
        queue.needs_rewind = true;
        break;
    case DeliveryStatus::unavailable:
        if (result.may_be_event_fault && is_poison(request.item->failure_history))
            request.item->rejection_reason = result.reason;
        else
            back_off(result, request.sent_at, now);
        queue.needs_rewind = true;
        break;
    case DeliveryStatus::not_sent:
        queue.needs_rewind = true;
        break;
    }
    advance(queue);
}

// Moves a queue on after any change: settles its first events that have results, rewinds it if
// needed, and adds it to ready_ if it can send. Removes an idle queue: the reference is invalid
// then.
void PipelinedDispatcher::advance(AggregateQueue& queue)
{
    while (!queue.items.empty() && queue.items.front().is_delivered)
        record_front_settled(queue);
    if (queue.needs_rewind && queue.in_flight == 0)
        rewind(queue);
    // A rejection is recorded when nothing of the queue is in flight, because the relay may move
    // the events behind it to outbox_retries.
    while (!queue.blocked && !queue.needs_rewind && queue.in_flight == 0 && !queue.items.empty() &&
           queue.items.front().rejection_reason)
        record_front_settled(queue);
    // Brokers may forget the producer of a stream while the queue is empty.
    if (queue.items.empty())
        queue.confirmed_stream = 0;
    if (!queue.is_in_ready && sendable_stream(queue)) {
        queue.is_in_ready = true;
        ready_.push_back(&queue);
    }
    if (queue.is_idle())
        remove_queue(queue);
}

// Counts and removes the first event and records its result, unless its lease is lost. A recorded
// rejection blocks the queue, a recorded delivery unblocks it.
void PipelinedDispatcher::record_front_settled(AggregateQueue& queue)
{
    const Item& item = queue.items.front();
    item.is_delivered ? ++delivered_ : ++rejected_;
    if (!item.lease_lost) {
        record_settled(item.ref, queue.key, item.is_delivered,
                       item.rejection_reason.value_or(std::string{}), item.event_stats);
        queue.blocked = !item.is_delivered;
    }
    remove(queue, queue.items.begin());
}

// Removes the items with lease_lost and marks all others as unsent. Delivered ones, too: they are
// behind an event that was not delivered, so they were delivered too early. Nothing is in flight.
void PipelinedDispatcher::rewind(AggregateQueue& queue)
{
    queue.needs_rewind = false;
    for (auto item = queue.items.begin(); item != queue.items.end();) {
        item->is_delivered = false;
        item = item->lease_lost ? remove(queue, item) : std::next(item);
    }
    queue.unsent = queue.items.begin();
    // Behind a rejected event, other rejected events keep their results: a repeated request would
    // only be rejected again.
    if (!queue.items.empty() && queue.items.front().rejection_reason)
        return;
    for (Item& item : queue.items)
        item.rejection_reason.reset();
}

// Removes an item from its queue and from the counts, returns its event to the pool, and returns
// the next item.
PipelinedDispatcher::Items::iterator PipelinedDispatcher::remove(AggregateQueue& queue,
                                                                 Items::iterator item)
{
    const Items::iterator next = std::next(item);
    if (queue.unsent == item)
        queue.unsent = next;
    release(std::move(item->event), item->bytes);
    if (spare_items_.size() < sink_->max_in_flight()) {
        *item = {};
        spare_items_.splice(spare_items_.begin(), queue.items, item);
    } else {
        queue.items.erase(item);
    }
    return next;
}

// Removes a queue, which must be idle, and keeps its node for reuse if few are kept.
void PipelinedDispatcher::remove_queue(AggregateQueue& queue)
{
    QueueMap::node_type spare = queues_.extract(queue.key);
    if (spare_queues_.size() < sink_->max_in_flight())
        spare_queues_.push_back(std::move(spare));
}

// ---- decisions of the relay

std::vector<EventRef> PipelinedDispatcher::events_behind(const SettledEvent& rejected) const
{
    std::vector<EventRef> refs;
    const auto found = queues_.find(rejected.ordering_key);
    if (found == queues_.end())
        return refs;
    for (const Item& item : found->second.items)
        refs.push_back(item.ref);
    return refs;
}

void PipelinedDispatcher::resume_behind(const SettledEvent& rejected,
                                        std::span<const std::int64_t> blocked_ids)
{
    const auto found = queues_.find(rejected.ordering_key);
    if (found == queues_.end())
        return;
    AggregateQueue& queue = found->second;
    for (auto item = queue.items.begin(); item != queue.items.end();) {
        const bool is_blocked = std::ranges::find(blocked_ids, item->ref.id) != blocked_ids.end();
        item = is_blocked ? remove(queue, item) : std::next(item);
    }
    queue.blocked = false;
    advance(queue);
}

void PipelinedDispatcher::drop_batch(std::int64_t token)
{
    std::erase_if(settled_, [&](const SettledEvent& s) { return s.ref.token == token; });
    std::vector<AggregateQueue*> touched;
    for (auto& [key, queue] : queues_) {
        // Sent items are removed when their results are settled or rewound.
        for (auto item = queue.items.begin(); item != queue.unsent; ++item)
            item->lease_lost = item->lease_lost || item->ref.token == token;
        for (auto item = queue.unsent; item != queue.items.end();)
            item = item->ref.token == token ? remove(queue, item) : std::next(item);
        touched.push_back(&queue);
    }
    for (AggregateQueue* queue : touched) {
        // The rejection that blocked the queue may have been one of the dropped results.
        queue->blocked = std::ranges::any_of(settled_, [&](const SettledEvent& s) {
            return !s.delivered && s.ordering_key == queue->key;
        });
        advance(*queue);
    }
}

void PipelinedDispatcher::clear_all()
{
    queues_.clear();
    ready_.clear();
    requests_.clear();
}

// ---- claiming

std::size_t PipelinedDispatcher::claim_size() const
{
    return std::max(sink_->max_in_flight() / 4, std::min(sink_->max_in_flight(), min_claim_size));
}

// Returns true if the first event of some queue has not failed yet.
bool PipelinedDispatcher::has_queue_without_failure() const
{
    return std::ranges::any_of(queues_, [](const auto& entry) {
        const Items& items = entry.second.items;
        return !items.empty() && !items.front().failure_history.has_failed;
    });
}

// While the sink fails, the claimed events suffice as probes, unless the first events of all queues
// have failed: they may be poison.
bool PipelinedDispatcher::needs_more() const
{
    if (!sink_->status_message().empty())
        return claimed_ == 0;
    return claimed_ < sink_->max_in_flight() &&
           (consecutive_failures_ == 0 || !has_queue_without_failure());
}

} // namespace outbox::sink
