// A courier on a stage: the other end is scripted, the clock is moved by hand.
#pragma once

#include "sink/dispatch/dispatcher.hpp"

#include <gtest/gtest.h>

#include <map>

namespace outbox::sink::test {

using namespace std::chrono_literals;

using Ids = std::vector<std::int64_t>;
using Parcels = std::vector<Ids>;

// What the other end sees and says. It keeps an eye on what a sink is promised.
struct Receiver {
    struct Arrival {
        RequestId parcel;
        std::vector<const Event*> events;
    };

    std::size_t capacity = 4;
    std::size_t max_events_per_request = 1;
    bool ordered = true;
    bool preserves_order = false;   // then many of an aggregate may be on the way
    bool may_be_event_fault = true; // the trouble that it speaks of
    bool is_ready = true;
    std::string status_message = {};
    std::map<std::int64_t, std::uint64_t> streams = {}; // of these; of all others it is 0
    std::optional<TimePoint> next_work = {};
    std::map<std::int64_t, DeliveryStatus> at_once = {}; // what is said of these when they are sent
    std::vector<Arrival> on_the_way = {};
    std::vector<Outcome> outcomes = {};        // to be heard of by the next work()
    Parcels sent = {};                         // all that ever were
    std::size_t started = 0;                   // of these
    std::map<std::string, Ids> delivered = {}; // to each aggregate

    static Ids ids_of(const Arrival& arrival)
    {
        Ids ids;
        for (const Event* event : arrival.events)
            ids.push_back(event->id);
        return ids;
    }

    static bool is_same_aggregate(const Event& one, const Event& other)
    {
        return one.aggregate_type == other.aggregate_type && one.aggregate_id == other.aggregate_id;
    }

    void take(RequestId parcel, std::span<const Event* const> events)
    {
        EXPECT_TRUE(is_ready);
        EXPECT_LT(on_the_way.size(), capacity);
        EXPECT_GE(events.size(), 1u);
        EXPECT_LE(events.size(), max_events_per_request);
        for (const Arrival& other : on_the_way) {
            EXPECT_NE(other.parcel, parcel);
            for (const Event* one : other.events)
                for (const Event* event : events)
                    EXPECT_FALSE(ordered && is_same_aggregate(*one, *event) &&
                                 !(preserves_order && one->id <= event->id))
                        << event->id << " overtakes " << one->id;
        }
        on_the_way.push_back({parcel, {events.begin(), events.end()}});
        sent.push_back(ids_of(on_the_way.back()));
    }

    Outcome decide(std::size_t index, DeliveryStatus verdict, const std::string& reason,
                   std::optional<std::chrono::seconds> retry_after = {})
    {
        const Arrival arrival = on_the_way.at(index);
        on_the_way.erase(on_the_way.begin() + static_cast<std::ptrdiff_t>(index));
        if (verdict == DeliveryStatus::delivered)
            for (const Event* event : arrival.events)
                delivered[event->aggregate_id].push_back(event->id);
        return {arrival.parcel, verdict, reason, retry_after, may_be_event_fault};
    }

    void answer(std::size_t index, DeliveryStatus verdict, const std::string& reason,
                std::optional<std::chrono::seconds> retry_after = {})
    {
        outcomes.push_back(decide(index, verdict, reason, retry_after));
    }

    std::size_t times_sent(std::int64_t id) const
    {
        return static_cast<std::size_t>(std::ranges::count_if(
            sent, [&](const Ids& ids) { return std::ranges::find(ids, id) != ids.end(); }));
    }
};

inline std::string said_of(std::int64_t id)
{
    return "said of " + std::to_string(id);
}

class ScriptedSink final : public Sink {
public:
    explicit ScriptedSink(Receiver& receiver) : receiver_(receiver) {}

    int descriptor() const override { return 42; }
    std::optional<TimePoint> next_work() const override { return receiver_.next_work; }
    std::vector<std::string> metadata() const override { return {"region"}; }
    std::size_t capacity() const override { return receiver_.capacity; }
    std::size_t max_events_per_request() const override { return receiver_.max_events_per_request; }
    bool preserves_order() const override { return receiver_.preserves_order; }
    StreamId stream_of(const Event& event) const override
    {
        const auto found = receiver_.streams.find(event.id);
        return found == receiver_.streams.end() ? 0 : found->second;
    }
    bool is_ready() const override { return receiver_.is_ready; }
    void abandon() override { receiver_.on_the_way.clear(); }
    std::string status_message() const override { return receiver_.status_message; }
    std::vector<std::string> take_log_lines() override { return {"a remark"}; }

    std::optional<Outcome> send(RequestId parcel, std::span<const Event* const> events,
                                StreamId stream) override
    {
        EXPECT_EQ(stream, stream_of(*events.front()));
        receiver_.take(parcel, events);
        const std::int64_t id = events.front()->id;
        const auto found = receiver_.at_once.find(id);
        if (found == receiver_.at_once.end())
            return std::nullopt;
        return receiver_.decide(receiver_.on_the_way.size() - 1, found->second, said_of(id));
    }

    void start() override { receiver_.started = receiver_.sent.size(); }

    void work(std::vector<Outcome>& outcomes) override
    {
        for (Outcome& outcome : std::exchange(receiver_.outcomes, {}))
            outcomes.push_back(std::move(outcome));
    }

private:
    Receiver& receiver_;
};

// A courier, its receiver, and a clock that is moved by hand.
template <typename SomeCourier>
struct Stage {
    static constexpr RetryPolicy policy{10, 0, 1'000'000, 8'000'000, 0.5};

    explicit Stage(Receiver setting = {}, const RetryPolicy& policy = Stage::policy)
        : receiver(std::move(setting)), dispatcher(std::make_unique<ScriptedSink>(receiver),
                                                   receiver.ordered, policy, [&] { return chance; })
    {}

    void add(std::int64_t id, const std::string& aggregate, std::int64_t token = 1,
             int attempts = 1)
    {
        std::unique_ptr<Event> event = dispatcher.event_pool().take(); // as the relay does
        event->id = id;
        event->token = token;
        event->aggregate_type = "order";
        event->aggregate_id = aggregate;
        event->payload = std::string(static_cast<std::size_t>(id % 50), 'x');
        event->attempts = attempts;
        dispatcher.add(std::move(event));
    }

    // Each in an aggregate of its own.
    void add_apart(std::initializer_list<std::int64_t> ids, std::int64_t token = 1)
    {
        for (const std::int64_t id : ids)
            add(id, "of " + std::to_string(id), token);
        work();
    }

    void work()
    {
        dispatcher.work(now);
        EXPECT_EQ(receiver.started, receiver.sent.size());
    }

    void pass(Clock::duration time)
    {
        now += time;
        work();
    }

    // Says what has come of the parcel that holds this event.
    void answer(std::int64_t id, DeliveryStatus verdict,
                std::optional<std::chrono::seconds> retry_after = {})
    {
        for (std::size_t i = 0; i < receiver.on_the_way.size(); ++i) {
            const Ids ids = Receiver::ids_of(receiver.on_the_way[i]);
            if (std::ranges::find(ids, id) != ids.end()) {
                receiver.answer(i, verdict, said_of(id), retry_after);
                return;
            }
        }
        ADD_FAILURE() << id << " is not on the way";
    }

    void deliver(std::initializer_list<std::int64_t> ids)
    {
        for (const std::int64_t id : ids)
            answer(id, DeliveryStatus::delivered);
        work();
    }

    void reject(std::int64_t id)
    {
        answer(id, DeliveryStatus::rejected);
        work();
    }

    // A moment later: what is heard of was not sent just now.
    void trouble(std::initializer_list<std::int64_t> ids)
    {
        now += 1ms;
        for (const std::int64_t id : ids)
            answer(id, DeliveryStatus::trouble);
        work();
    }

    Parcels on_the_way() const
    {
        Parcels parcels;
        for (const Receiver::Arrival& arrival : receiver.on_the_way)
            parcels.push_back(Receiver::ids_of(arrival));
        return parcels;
    }

    // Such as "1+ 2-".
    std::string settled() const
    {
        std::string text;
        for (const SettledEvent& one : dispatcher.settled())
            text += (text.empty() ? "" : " ") + std::to_string(one.handle.id) +
                    (one.delivered ? '+' : '-');
        return text;
    }

    Clock::duration pause() const { return dispatcher.resume_at() - now; }

    // Once the pause is over, answers all that is on the way.
    void round(const std::function<DeliveryStatus(std::int64_t)>& verdict)
    {
        now = std::max(now, dispatcher.resume_at());
        work();
        now += 1ms;
        while (!receiver.on_the_way.empty())
            answer(receiver.on_the_way.front().events.front()->id,
                   verdict(receiver.on_the_way.front().events.front()->id));
        work();
    }

    void expect_empty() const
    {
        EXPECT_EQ(dispatcher.in_hand(), 0u);
        EXPECT_EQ(dispatcher.on_the_way(), 0u);
        EXPECT_EQ(dispatcher.bytes(), 0u);
    }

    Receiver receiver;
    double chance = 0;
    TimePoint now = TimePoint{} + 1h;
    SomeCourier dispatcher;
};

inline constexpr auto fails = [](auto...) { return DeliveryStatus::trouble; };
inline constexpr auto works = [](auto...) { return DeliveryStatus::delivered; };

} // namespace outbox::sink::test
