// Dispatcher for sinks that preserve order, such as Kafka: many events of an aggregate are in
// flight. When one of them fails, the sink has delivered none behind it; if it has, contrary to its
// promise, those are delivered again, in order.
#pragma once

#include "sink/dispatch/dispatcher.hpp"
#include "sink/util/slot_map.hpp"

#include <deque>
#include <list>
#include <unordered_map>

namespace outbox::sink {

// See above. Not thread-safe: the relay's thread makes all calls.
class PipelinedDispatcher final : public Dispatcher {
public:
    PipelinedDispatcher(std::unique_ptr<Sink> sink, bool ordered, const RetryPolicy& policy,
                        JitterSource jitter)
        : Dispatcher(std::move(sink), ordered, policy, std::move(jitter))
    {}
    ~PipelinedDispatcher() override { sink_->cancel_all(); } // before the events are freed

    void add(std::unique_ptr<Event> event) override;
    std::vector<EventRef> events_behind(const SettledEvent& rejected) const override;
    void resume_behind(const SettledEvent& rejected,
                       std::span<const std::int64_t> blocked_ids) override;
    void drop_batch(std::int64_t token) override;
    std::size_t claim_size() const override;

private:
    // An event that is queued, in flight, or has a result but is not settled yet.
    struct Item {
        std::unique_ptr<Event> event;

        // Copies of the event's members: to settle a delivered event without a read of it, which
        // would be a cache miss.
        EventRef ref{};
        EventStats event_stats;
        std::size_t bytes = 0;

        FailureHistory failure_history;
        bool is_delivered = false;
        bool lease_lost = false; // its batch was dropped after it was sent: ignore the result
        std::optional<std::string> rejection_reason; // set: rejected
    };

    using Items = std::list<Item>; // a list, because requests point to its items

    // Events of one aggregate in order, or one event if the sink is not ordered.
    struct AggregateQueue {
        std::uint64_t key = 0;
        Items items;
        Items::iterator unsent = items.end(); // first item that was not sent
        std::size_t in_flight = 0;            // sent items without a result
        bool needs_rewind = false; // one failed: send all from it on again, when none is in flight
        bool blocked = false;      // behind a rejected event, until resume_behind()
        bool is_in_ready = false;  // in ready_
        StreamId confirmed_stream = 0; // stream that has delivered one of its events; 0: none

        bool can_send() { return unsent != items.end() && !needs_rewind && !blocked; }
        bool is_idle() const { return items.empty() && !blocked && !is_in_ready; }
    };

    // By ordering key; its nodes keep their addresses, which ready_ and requests_ point to.
    using QueueMap = std::unordered_map<std::uint64_t, AggregateQueue>;

    // A request in flight. It has one event.
    struct DeliveryRequest {
        AggregateQueue* queue;
        Items::iterator item;
        StreamId stream;
        TimePoint sent_at;
    };

    void on_result(const DeliveryResult& result, TimePoint now) override;
    bool send_ready(TimePoint now) override;
    bool has_sendable() const override { return !ready_.empty(); }
    bool needs_more() const override;
    bool has_queue_without_failure() const;
    void clear_all() override;

    AggregateQueue& queue_for(std::uint64_t key);
    Items::iterator append_item(AggregateQueue& queue);
    std::optional<StreamId> sendable_stream(AggregateQueue& queue) const;
    void send_next(AggregateQueue& queue, StreamId stream, TimePoint now);
    void advance(AggregateQueue& queue);
    void record_front_settled(AggregateQueue& queue);
    void rewind(AggregateQueue& queue);
    Items::iterator remove(AggregateQueue& queue, Items::iterator item);
    void remove_queue(AggregateQueue& queue);

    QueueMap queues_;
    std::deque<AggregateQueue*> ready_; // queues that can send, the longest waiting first
    SlotMap<DeliveryRequest> requests_; // in flight

    // Unused nodes. Queues and items come and go with every event; reuse avoids allocations.
    std::vector<QueueMap::node_type> spare_queues_;
    Items spare_items_;
};

} // namespace outbox::sink
