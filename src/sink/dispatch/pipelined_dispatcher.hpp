// For sinks that keep the order of what they are sent, such as Kafka: many events of an aggregate
// are on the way at once. When one of them comes back, the sink has delivered nothing behind it;
// should it have done so all the same, that is delivered again, in its place.
#pragma once

#include "sink/dispatch/dispatcher.hpp"
#include "sink/util/slot_map.hpp"

#include <deque>
#include <list>
#include <unordered_map>

namespace outbox::sink {

class PipelinedDispatcher final : public Dispatcher {
public:
    PipelinedDispatcher(std::unique_ptr<Sink> sink, bool ordered, const RetryPolicy& policy,
                        JitterSource jitter)
        : Dispatcher(std::move(sink), ordered, policy, std::move(jitter))
    {}
    ~PipelinedDispatcher() override { sink_->cancel_all(); } // before the events go

    void add(std::unique_ptr<Event> event) override;
    std::vector<EventRef> events_behind(const SettledEvent& rejected) const override;
    void resume_behind(const SettledEvent& rejected,
                       std::span<const std::int64_t> blocked_ids) override;
    void drop_batch(std::int64_t token) override;
    std::size_t claim_size() const override;

private:
    struct Item {
        std::unique_ptr<Event> event;

        // Of the event, which is not looked at any more when it has arrived: others have been in
        // memory's fast part meanwhile.
        EventRef ref{};
        EventStats event_stats;
        std::size_t bytes = 0;

        FailureHistory failure_history;
        bool is_delivered = false;
        bool lease_lost = false; // its lease is lost: what comes of it is nobody's
        std::optional<std::string> rejection_reason;
    };

    using Items = std::list<Item>; // they stay where they are

    // The events of an aggregate, or one event where order does not matter.
    struct AggregateQueue {
        std::uint64_t key = 0;
        Items items;
        Items::iterator unsent = items.end(); // those before it are sent
        std::size_t in_flight = 0; // of the sent ones: of the others it is known what came of them
        bool needs_rewind = false; // one came back: those behind it go again, when all are home
        bool blocked = false;      // behind a rejected event
        bool is_in_ready = false;  // in ready_
        StreamId confirmed_stream = 0; // in which one of its events was delivered

        bool can_send() { return unsent != items.end() && !needs_rewind && !blocked; }
        bool is_idle() const { return items.empty() && !blocked && !is_in_ready; }
    };

    using QueueMap = std::unordered_map<std::uint64_t, AggregateQueue>; // so do these

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
    std::deque<AggregateQueue*> ready_; // those that can send, the longest waiting first
    SlotMap<DeliveryRequest> requests_;

    // Queues and items come and go with every event: some are kept for those that follow.
    std::vector<QueueMap::node_type> spare_queues_;
    Items spare_items_;
};

} // namespace outbox::sink
