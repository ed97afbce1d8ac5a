// A dispatcher with a scripted receiver and a clock that the test advances.
#pragma once

#include "sink/dispatch/dispatcher.hpp"

#include <gtest/gtest.h>

#include <map>

namespace outbox::sink::test {

using namespace std::chrono_literals;

using Ids = std::vector<std::int64_t>;
using Requests = std::vector<Ids>;

// The scripted receiver. It checks the promises of the dispatcher to a sink: order, limits and
// distinct request ids.
struct Receiver {
    struct InFlightRequest {
        RequestId request_id;
        std::vector<const Event*> events;
    };

    std::size_t max_in_flight = 4;
    std::size_t max_events_per_request = 1;
    bool ordered = true;
    bool preserves_order = false;   // several events of an aggregate may be in flight
    bool may_be_event_fault = true; // reported with each failure
    bool can_send = true;
    std::string status_message = {};
    std::map<std::int64_t, std::uint64_t> streams =
        {}; // stream of an event id; 0 if it is missing here
    std::optional<TimePoint> next_poll_at = {};
    std::map<std::int64_t, DeliveryStatus> immediate =
        {}; // returned by send() at once, by event id
    std::vector<InFlightRequest> in_flight = {};
    std::vector<DeliveryResult> results = {};  // read by the next poll()
    Requests sent = {};                        // all requests so far
    std::size_t flushed = 0;                   // length of `sent` at the last flush()
    std::map<std::string, Ids> delivered = {}; // by aggregate_id

    static Ids ids_of(const InFlightRequest& request)
    {
        Ids ids;
        for (const Event* event : request.events)
            ids.push_back(event->id);
        return ids;
    }

    static bool is_same_aggregate(const Event& one, const Event& other)
    {
        return one.aggregate_type == other.aggregate_type && one.aggregate_id == other.aggregate_id;
    }

    void accept(RequestId request_id, std::span<const Event* const> events)
    {
        EXPECT_TRUE(can_send);
        EXPECT_LT(in_flight.size(), max_in_flight);
        EXPECT_GE(events.size(), 1u);
        EXPECT_LE(events.size(), max_events_per_request);
        for (const InFlightRequest& other : in_flight) {
            EXPECT_NE(other.request_id, request_id);
            for (const Event* one : other.events)
                for (const Event* event : events)
                    EXPECT_FALSE(ordered && is_same_aggregate(*one, *event) &&
                                 !(preserves_order && one->id <= event->id))
                        << event->id << " overtakes " << one->id;
        }
        in_flight.push_back({request_id, {events.begin(), events.end()}});
        sent.push_back(ids_of(in_flight.back()));
    }

    DeliveryResult decide(std::size_t index, DeliveryStatus status, const std::string& reason,
                          std::optional<std::chrono::seconds> retry_after = {})
    {
        const InFlightRequest request = in_flight.at(index);
        in_flight.erase(in_flight.begin() + static_cast<std::ptrdiff_t>(index));
        if (status == DeliveryStatus::delivered)
            for (const Event* event : request.events)
                delivered[event->aggregate_id].push_back(event->id);
        return {request.request_id, status, reason, retry_after, may_be_event_fault};
    }

    void answer(std::size_t index, DeliveryStatus status, const std::string& reason,
                std::optional<std::chrono::seconds> retry_after = {})
    {
        results.push_back(decide(index, status, reason, retry_after));
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

    int wait_fd() const override { return 42; }
    std::optional<TimePoint> next_poll_at() const override { return receiver_.next_poll_at; }
    std::vector<std::string> metadata_keys() const override { return {"region"}; }
    std::size_t max_in_flight() const override { return receiver_.max_in_flight; }
    std::size_t max_events_per_request() const override { return receiver_.max_events_per_request; }
    bool preserves_order() const override { return receiver_.preserves_order; }
    StreamId stream_of(const Event& event) const override
    {
        const auto found = receiver_.streams.find(event.id);
        return found == receiver_.streams.end() ? 0 : found->second;
    }
    bool can_send() const override { return receiver_.can_send; }
    void cancel_all() override { receiver_.in_flight.clear(); }
    std::string status_message() const override { return receiver_.status_message; }
    std::vector<std::string> take_log_lines() override { return {"a remark"}; }

    std::optional<DeliveryResult> send(RequestId request_id, std::span<const Event* const> events,
                                       StreamId stream) override
    {
        EXPECT_EQ(stream, stream_of(*events.front()));
        receiver_.accept(request_id, events);
        const std::int64_t id = events.front()->id;
        const auto found = receiver_.immediate.find(id);
        if (found == receiver_.immediate.end())
            return std::nullopt;
        return receiver_.decide(receiver_.in_flight.size() - 1, found->second, said_of(id));
    }

    void flush() override { receiver_.flushed = receiver_.sent.size(); }

    void poll(std::vector<DeliveryResult>& results) override
    {
        for (DeliveryResult& result : std::exchange(receiver_.results, {}))
            results.push_back(std::move(result));
    }

private:
    Receiver& receiver_;
};

// A dispatcher, its receiver, and a clock that the test advances.
template <typename SomeDispatcher>
struct Stage {
    static constexpr RetryPolicy policy{10, 0, 1'000'000, 8'000'000, 0.5};

    explicit Stage(Receiver setting = {}, const RetryPolicy& policy = Stage::policy)
        : receiver(std::move(setting)), dispatcher(std::make_unique<ScriptedSink>(receiver),
                                                   receiver.ordered, policy, [&] { return jitter; })
    {}

    void add(std::int64_t id, const std::string& aggregate, std::int64_t token = 1,
             int attempts = 1)
    {
        std::unique_ptr<Event> event = dispatcher.event_pool().acquire(); // as in the relay
        event->id = id;
        event->token = token;
        event->aggregate_type = "order";
        event->aggregate_id = aggregate;
        event->payload = std::string(static_cast<std::size_t>(id % 50), 'x');
        event->attempts = attempts;
        dispatcher.add(std::move(event));
    }

    // Adds each event to an aggregate of its own.
    void add_apart(std::initializer_list<std::int64_t> ids, std::int64_t token = 1)
    {
        for (const std::int64_t id : ids)
            add(id, "of " + std::to_string(id), token);
        poll();
    }

    // Adds all events to one aggregate.
    void add_together(std::initializer_list<std::int64_t> ids, std::int64_t token = 1)
    {
        for (const std::int64_t id : ids)
            add(id, "a", token);
        poll();
    }

    void poll()
    {
        dispatcher.poll(now);
        EXPECT_EQ(receiver.flushed, receiver.sent.size());
    }

    void advance_clock(Clock::duration time)
    {
        now += time;
        poll();
    }

    // Gives a result to the request with this event.
    void answer(std::int64_t id, DeliveryStatus status,
                std::optional<std::chrono::seconds> retry_after = {})
    {
        for (std::size_t i = 0; i < receiver.in_flight.size(); ++i) {
            const Ids ids = Receiver::ids_of(receiver.in_flight[i]);
            if (std::ranges::find(ids, id) != ids.end()) {
                receiver.answer(i, status, said_of(id), retry_after);
                return;
            }
        }
        ADD_FAILURE() << id << " is not in flight";
    }

    void deliver(std::initializer_list<std::int64_t> ids)
    {
        for (const std::int64_t id : ids)
            answer(id, DeliveryStatus::delivered);
        poll();
    }

    void reject(std::int64_t id)
    {
        answer(id, DeliveryStatus::rejected);
        poll();
    }

    void mark_not_sent(std::initializer_list<std::int64_t> ids)
    {
        for (const std::int64_t id : ids)
            answer(id, DeliveryStatus::not_sent);
        poll();
    }

    // Advances the clock first, because a result never arrives at the time of sending.
    void fail(std::initializer_list<std::int64_t> ids)
    {
        now += 1ms;
        for (const std::int64_t id : ids)
            answer(id, DeliveryStatus::unavailable);
        poll();
    }

    Requests in_flight() const
    {
        Requests requests;
        for (const Receiver::InFlightRequest& request : receiver.in_flight)
            requests.push_back(Receiver::ids_of(request));
        return requests;
    }

    // Settled events as text, such as "1+ 2-": + delivered, - rejected.
    std::string settled() const
    {
        std::string text;
        for (const SettledEvent& one : dispatcher.settled())
            text += (text.empty() ? "" : " ") + std::to_string(one.ref.id) +
                    (one.delivered ? '+' : '-');
        return text;
    }

    // Ids of the events that are queued behind a rejected one.
    Ids events_behind(std::size_t settlement = 0) const
    {
        Ids ids;
        for (const EventRef& ref : dispatcher.events_behind(dispatcher.settled().at(settlement)))
            ids.push_back(ref.id);
        return ids;
    }

    void resume_behind(std::size_t settlement = 0, const Ids& blocked = {})
    {
        dispatcher.resume_behind(dispatcher.settled().at(settlement), blocked);
        poll();
    }

    Clock::duration pause() const { return dispatcher.resume_at() - now; }

    // Waits for the end of the pause, then gives a result to every request in flight.
    void round(const std::function<DeliveryStatus(std::int64_t)>& status)
    {
        now = std::max(now, dispatcher.resume_at());
        poll();
        now += 1ms;
        while (!receiver.in_flight.empty())
            answer(receiver.in_flight.front().events.front()->id,
                   status(receiver.in_flight.front().events.front()->id));
        poll();
    }

    void expect_empty() const
    {
        EXPECT_EQ(dispatcher.claimed(), 0u);
        EXPECT_EQ(dispatcher.in_flight(), 0u);
        EXPECT_EQ(dispatcher.claimed_bytes(), 0u);
    }

    Receiver receiver;
    double jitter = 0;
    TimePoint now = TimePoint{} + 1h;
    SomeDispatcher dispatcher;
};

inline constexpr auto fails = [](auto...) { return DeliveryStatus::unavailable; };
inline constexpr auto works = [](auto...) { return DeliveryStatus::delivered; };

} // namespace outbox::sink::test
