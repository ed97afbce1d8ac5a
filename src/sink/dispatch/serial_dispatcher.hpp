// For sinks that answer each request by itself, such as HTTP: at most one request with events of an
// aggregate is on the way.
//
//   waiting ──send──► on the way ──delivered──► settled
//      ▲                  │ rejected ─────────► settled; its lane is held until the relay has
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
                     JitterSource chance)
        : Dispatcher(std::move(sink), ordered, policy, std::move(chance))
    {}

    void add(std::unique_ptr<Event> event) override;
    std::vector<Handle> behind(const SettledEvent& rejected) const override;
    void resume_behind(const SettledEvent& rejected,
                       std::span<const std::int64_t> parked_ids) override;
    void drop_batch(std::int64_t token) override;
    std::size_t wanted() const override;

private:
    struct Item {
        std::unique_ptr<Event> event;
        FailureHistory failure_history;
        bool alone = false;    // not with others: one of them was rejected
        bool orphaned = false; // its lease is lost: what comes of it is nobody's
    };

    // The events of an aggregate, or one event where order does not matter. At most one parcel with
    // events of a lane is on the way.
    struct Lane {
        Queue<Item> items;
        std::size_t on_the_way = 0; // of these, the first ones
        bool held = false;          // behind a rejected event
        bool queued = false;        // in ready_
        bool returned = false;      // its first events are in a parcel that came back

        bool can_send() const { return !items.empty() && !held && !returned && on_the_way == 0; }
    };

    struct Share {
        std::uint64_t lane;
        std::size_t count;
    };

    struct DeliveryRequest {
        std::vector<Share> shares;
        TimePoint sent_at;
        FailureHistory failure_history;

        bool is_shared() const { return shares.size() > 1 || shares.front().count > 1; }
    };

    void queue_if_ready(std::uint64_t key);
    void send(DeliveryRequest parcel);
    static std::size_t share_of(const Lane& lane, std::size_t room);
    DeliveryRequest fill();
    DeliveryStatus judge(DeliveryRequest& parcel, const Outcome& outcome);
    void settle_all(const DeliveryRequest& parcel, bool delivered, const std::string& reason);
    void come_back(DeliveryRequest parcel);
    void unpack(const DeliveryRequest& parcel);
    void settle_orphans(std::uint64_t key);
    void settle_front(std::uint64_t key, Lane& lane, bool delivered, const std::string& reason);
    void remove(Lane& lane, std::size_t index);
    bool has_fresh_lane() const;

    void arrive(const Outcome& outcome, TimePoint now) override;
    bool send_some(TimePoint now) override;
    bool has_something_to_send() const override { return !(ready_.empty() && returned_.empty()); }
    bool needs_more() const override;
    void forget_all() override;

    std::unordered_map<std::uint64_t, Lane> lanes_;
    std::deque<std::uint64_t> ready_;      // lanes that can send, the longest waiting first
    std::deque<DeliveryRequest> returned_; // to be sent again as they are: a batch keeps its id
    std::unordered_map<RequestId, DeliveryRequest> parcels_;
    RequestId next_parcel_ = 1;
};

} // namespace outbox::sink
