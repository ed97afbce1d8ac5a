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
                        JitterSource chance)
        : Dispatcher(std::move(sink), ordered, policy, std::move(chance))
    {}
    ~PipelinedDispatcher() override { sink_->abandon(); } // before the events go

    void add(std::unique_ptr<Event> event) override;
    std::vector<Handle> behind(const SettledEvent& rejected) const override;
    void resume_behind(const SettledEvent& rejected,
                       std::span<const std::int64_t> parked_ids) override;
    void drop_batch(std::int64_t token) override;
    std::size_t wanted() const override;

private:
    struct Item {
        std::unique_ptr<Event> event;

        // Of the event, which is not looked at any more when it has arrived: others have been in
        // memory's fast part meanwhile.
        Handle handle{};
        EventStats tally;
        std::size_t bytes = 0;

        FailureHistory failure_history;
        bool arrived = false;
        bool orphaned = false; // its lease is lost: what comes of it is nobody's
        std::optional<std::string> rejection;
    };

    using Items = std::list<Item>; // they stay where they are

    // The events of an aggregate, or one event where order does not matter.
    struct Lane {
        std::uint64_t key = 0;
        Items items;
        Items::iterator unsent = items.end(); // those before it are sent
        std::size_t on_the_way = 0; // of the sent ones: of the others it is known what came of them
        bool broken = false;        // one came back: those behind it go again, when all are home
        bool held = false;          // behind a rejected event
        bool queued = false;        // in ready_
        StreamId trusted = 0;       // in which one of its events was delivered

        bool can_send() { return unsent != items.end() && !broken && !held; }
        bool is_idle() const { return items.empty() && !held && !queued; }
    };

    using Lanes = std::unordered_map<std::uint64_t, Lane>; // so do these

    struct DeliveryRequest {
        Lane* lane;
        Items::iterator item;
        StreamId stream;
        TimePoint sent_at;
    };

    void arrive(const Outcome& outcome, TimePoint now) override;
    bool send_some(TimePoint now) override;
    bool has_something_to_send() const override { return !ready_.empty(); }
    bool needs_more() const override;
    bool has_fresh_lane() const;
    void forget_all() override;

    Lane& lane_with(std::uint64_t key);
    Items::iterator new_item(Lane& lane);
    std::optional<StreamId> stream_of_next(Lane& lane) const;
    void send_next(Lane& lane, StreamId stream, TimePoint now);
    void go_on(Lane& lane);
    void settle_front(Lane& lane);
    void take_home(Lane& lane);
    Items::iterator remove(Lane& lane, Items::iterator item);
    void discard(Lane& lane);

    Lanes lanes_;
    std::deque<Lane*> ready_; // those that can send, the longest waiting first
    Slots<DeliveryRequest> parcels_;

    // Lanes and items come and go with every event: some are kept for those that follow.
    std::vector<Lanes::node_type> spare_lanes_;
    Items spare_items_;
};

} // namespace outbox::sink
