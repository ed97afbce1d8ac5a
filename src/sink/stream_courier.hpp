// For sinks that keep the order of what they are sent, such as Kafka: many events of an aggregate
// are on the way at once. When one of them comes back, the sink has delivered nothing behind it;
// should it have done so all the same, that is delivered again, in its place.
#pragma once

#include "sink/courier.hpp"
#include "sink/queue.hpp"
#include "sink/slots.hpp"

#include <deque>
#include <unordered_map>

namespace outbox::sink {

class StreamCourier final : public Courier {
public:
    StreamCourier(std::unique_ptr<Sink> sink, bool ordered, const RetryPolicy& policy,
                  Chance chance)
        : Courier(std::move(sink), ordered, policy, std::move(chance))
    {}
    ~StreamCourier() override { sink_->abandon(); } // before the events go

    void add(Event event) override;
    std::vector<Handle> behind(const Settlement& rejected) const override;
    void go_on_behind(const Settlement& rejected,
                      std::span<const std::int64_t> parked_ids) override;
    void drop_batch(std::int64_t token) override;
    std::size_t wanted() const override;

private:
    struct Item {
        Event event;
        Suspicion suspicion;
        bool on_the_way = false;
        bool arrived = false;
        bool orphaned = false; // its lease is lost: what comes of it is nobody's
        std::optional<std::string> rejection;
    };

    // The events of an aggregate, or one event where order does not matter.
    struct Lane {
        std::uint64_t key;
        Queue<Item> items;
        std::size_t sent = 0;       // of these, the first ones
        std::size_t on_the_way = 0; // of the sent ones: of the others it is known what came of them
        bool broken = false;        // one came back: those behind it go again, when all are home
        bool held = false;          // behind a rejected event
        bool queued = false;        // in ready_
        StreamId trusted = 0;       // in which one of its events was delivered

        bool can_send() const { return sent < items.size() && !broken && !held; }
        bool is_idle() const { return items.empty() && !held && !queued; }
    };

    struct Parcel {
        Lane* lane;
        Item* item;
        StreamId stream;
        TimePoint sent_at;
    };

    void arrive(const Outcome& outcome, TimePoint now) override;
    bool send_some(TimePoint now) override;
    bool has_something_to_send() const override { return !ready_.empty(); }
    bool is_hungry() const override;
    bool has_fresh_lane() const;
    void forget_all() override;

    std::optional<StreamId> stream_of_next(const Lane& lane) const;
    void send_next(Lane& lane, StreamId stream, TimePoint now);
    void go_on(Lane& lane);
    void settle_front(Lane& lane);
    void take_home(Lane& lane);
    void remove(Lane& lane, std::size_t index);

    std::size_t most_lanes() const { return 4 * sink_->capacity() + 64; }

    std::unordered_map<std::uint64_t, Lane> lanes_; // they stay where they are
    std::vector<std::unique_ptr<Item>> spare_items_;
    std::deque<Lane*> ready_; // those that can send, the longest waiting first
    Slots<Parcel> parcels_;
};

} // namespace outbox::sink
