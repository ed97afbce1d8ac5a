// Dispatcher for sinks whose requests are independent of each other, such as HTTP: at most one
// request with events of an aggregate is in flight.
//
//   queued ──send──► in flight ──delivered──► settled
//     ▲                  │ │
//     │                  │ └─────rejected───► settled; its queue is blocked until the relay calls
//     └──unavailable─────┘                    resume_behind()
//
// After unavailable the sink backs off. An event that fails again and again while others are
// delivered is rejected.
#pragma once

#include "sink/dispatch/dispatcher.hpp"
#include "sink/util/stable_queue.hpp"

#include <deque>
#include <unordered_map>

namespace outbox::sink {

// See above. Not thread-safe: the relay's thread makes all calls.
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
    // A queued event.
    struct Item {
        std::unique_ptr<Event> event;
        FailureHistory failure_history;
        bool send_alone = false; // in a request of its own: a request with it was rejected
        bool lease_lost = false; // its batch was dropped while in flight: ignore the result
    };

    // Events of one aggregate in order, or one event if the sink is not ordered. At most one
    // request with events of a queue is in flight.
    struct AggregateQueue {
        StableQueue<Item> items;
        std::size_t in_flight = 0;        // how many of the first items are in flight
        bool blocked = false;             // behind a rejected event, until resume_behind()
        bool is_in_ready = false;         // its key is in ready_
        bool in_requeued_request = false; // its first items belong to a request in requeued_

        bool can_send() const
        {
            return !items.empty() && !blocked && !in_requeued_request && in_flight == 0;
        }
    };

    // The first `count` items of a queue, as a part of a request.
    struct Slice {
        std::uint64_t key;
        std::size_t count;
    };

    // A request, in flight or to be repeated.
    struct DeliveryRequest {
        std::vector<Slice> slices;
        TimePoint sent_at;
        FailureHistory failure_history; // used if it has several events

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

    std::unordered_map<std::uint64_t, AggregateQueue> queues_; // by ordering key
    std::deque<std::uint64_t> ready_;      // queues that can send, the longest waiting first
    std::deque<DeliveryRequest> requeued_; // to be repeated unchanged, so that webhook-id is too
    std::unordered_map<RequestId, DeliveryRequest> requests_; // in flight
    RequestId next_request_id_ = 1;
};

} // namespace outbox::sink
