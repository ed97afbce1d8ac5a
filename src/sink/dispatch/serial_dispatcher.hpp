// For sinks that answer each request by itself, such as HTTP: at most one request with events of an
// aggregate is on the way.
//
//   waiting ──send──► on the way ──delivered──► settled
//      ▲                  │ rejected ─────────► settled; its queue is held until the relay has
//      decided └─────trouble──────┘ the sink backs off; an event that fails again and again while
//      others
//                           succeed is rejected
#pragma once

#include "sink/dispatch/dispatcher.hpp"
#include "sink/util/stable_queue.hpp"

#include <deque>
#include <unordered_map>

namespace outbox::sink {

class SerialDispatcher final : public Dispatcher {
public:
    SerialDispatcher(std::unique_ptr<Sink> sink, bool ordered, const RetryPolicy& policy,
                     JitterSource jitter)
        : Dispatcher(std::move(sink), ordered, policy, std::move(jitter))
    {}

    void add(std::unique_ptr<Event> event) override;
    std::vector<EventRef> events_behind(const SettledEvent& rejected) const override;
    void resume_behind(const SettledEvent& rejected,
                       std::span<const std::int64_t> blocked_ids) override;
    void drop_batch(std::int64_t token) override;
    std::size_t claim_size() const override;

private:
    struct Item {
        std::unique_ptr<Event> event;
        FailureHistory failure_history;
        bool send_alone = false; // not with others: one of them was rejected
        bool lease_lost = false; // its lease is lost: what comes of it is nobody's
    };

    // The events of an aggregate, or one event where order does not matter. At most one request
    // with events of a queue is on the way.
    struct AggregateQueue {
        StableQueue<Item> items;
        std::size_t in_flight = 0;        // of these, the first ones
        bool blocked = false;             // behind a rejected event
        bool is_in_ready = false;         // in ready_
        bool in_requeued_request = false; // its first events are in a request that came back

        bool can_send() const
        {
            return !items.empty() && !blocked && !in_requeued_request && in_flight == 0;
        }
    };

    struct Slice {
        std::uint64_t key;
        std::size_t count;
    };

    struct DeliveryRequest {
        std::vector<Slice> slices;
        TimePoint sent_at;
        FailureHistory failure_history;

        bool has_several_events() const { return slices.size() > 1 || slices.front().count > 1; }
    };

    void add_to_ready_if_sendable(std::uint64_t key);
    void send(DeliveryRequest request);
    static std::size_t slice_size(const AggregateQueue& queue, std::size_t room);
    DeliveryRequest build_request();
    DeliveryStatus classify(DeliveryRequest& request, const DeliveryResult& result);
    void record_request_settled(const DeliveryRequest& request, bool delivered,
                                const std::string& reason);
    void requeue(DeliveryRequest request);
    void split(const DeliveryRequest& request);
    void remove_lease_lost(std::uint64_t key);
    void record_front_settled(std::uint64_t key, AggregateQueue& queue, bool delivered,
                              const std::string& reason);
    void remove(AggregateQueue& queue, std::size_t index);
    bool has_queue_without_failure() const;

    void on_result(const DeliveryResult& result, TimePoint now) override;
    bool send_ready(TimePoint now) override;
    bool has_sendable() const override { return !(ready_.empty() && requeued_.empty()); }
    bool needs_more() const override;
    void clear_all() override;

    std::unordered_map<std::uint64_t, AggregateQueue> queues_;
    std::deque<std::uint64_t> ready_;      // queues that can send, the longest waiting first
    std::deque<DeliveryRequest> requeued_; // to be sent again as they are: a batch keeps its id
    std::unordered_map<RequestId, DeliveryRequest> requests_;
    RequestId next_request_id_ = 1;
};

} // namespace outbox::sink
