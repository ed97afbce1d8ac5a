#include "sink/lane_courier.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace {

using namespace outbox::sink;
using namespace std::chrono_literals;
using outbox::RetryPolicy;

using Ids = std::vector<std::int64_t>;
using Parcels = std::vector<Ids>;

// What the other end sees and says. It keeps an eye on what a sink is promised.
struct Receiver {
    struct Arrival {
        ParcelId parcel;
        std::vector<const Event*> events;
    };

    std::size_t capacity = 4;
    std::size_t parcel_size = 1;
    bool ordered = true;
    bool may_be_its_own = true; // the trouble that it speaks of
    std::optional<TimePoint> next_work = {};
    std::vector<Arrival> on_the_way = {};
    std::vector<Outcome> outcomes = {}; // to be heard of by the next work()
    Parcels sent = {};                  // all that ever were
    std::size_t started = 0;            // of these

    static Ids ids_of(const Arrival& arrival)
    {
        Ids ids;
        for (const Event* event : arrival.events)
            ids.push_back(event->id);
        return ids;
    }

    void take(ParcelId parcel, std::span<const Event* const> events)
    {
        EXPECT_LT(on_the_way.size(), capacity);
        EXPECT_GE(events.size(), 1u);
        EXPECT_LE(events.size(), parcel_size);
        for (const Arrival& other : on_the_way) {
            EXPECT_NE(other.parcel, parcel);
            for (const Event* one : other.events)
                for (const Event* event : events)
                    EXPECT_FALSE(ordered && one->aggregate_type == event->aggregate_type &&
                                 one->aggregate_id == event->aggregate_id)
                        << event->id << " overtakes " << one->id;
        }
        on_the_way.push_back({parcel, {events.begin(), events.end()}});
        sent.push_back(ids_of(on_the_way.back()));
    }

    void answer(std::size_t index, Verdict verdict, const std::string& reason,
                std::optional<std::chrono::seconds> retry_after)
    {
        outcomes.push_back(
            {on_the_way.at(index).parcel, verdict, reason, retry_after, may_be_its_own});
        on_the_way.erase(on_the_way.begin() + static_cast<std::ptrdiff_t>(index));
    }

    std::size_t times_sent(std::int64_t id) const
    {
        return static_cast<std::size_t>(std::ranges::count_if(
            sent, [&](const Ids& ids) { return std::ranges::find(ids, id) != ids.end(); }));
    }
};

class ScriptedSink final : public Sink {
public:
    explicit ScriptedSink(Receiver& receiver) : receiver_(receiver) {}

    int descriptor() const override { return 42; }
    std::optional<TimePoint> next_work() const override { return receiver_.next_work; }
    std::vector<std::string> metadata() const override { return {"region"}; }
    std::size_t capacity() const override { return receiver_.capacity; }
    std::size_t parcel_size() const override { return receiver_.parcel_size; }
    void abandon() override { receiver_.on_the_way.clear(); }

    std::optional<Outcome> send(ParcelId parcel, std::span<const Event* const> events) override
    {
        receiver_.take(parcel, events);
        return std::nullopt;
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
struct Stage {
    static constexpr RetryPolicy policy{10, 0, 1'000'000, 8'000'000, 0.5};

    explicit Stage(Receiver setting = {}, const RetryPolicy& policy = Stage::policy)
        : receiver(std::move(setting)), courier(std::make_unique<ScriptedSink>(receiver),
                                                receiver.ordered, policy, [&] { return chance; })
    {}

    void add(std::int64_t id, const std::string& aggregate, std::int64_t token = 1,
             int attempts = 1)
    {
        Event event;
        event.id = id;
        event.token = token;
        event.aggregate_type = "order";
        event.aggregate_id = aggregate;
        event.payload = std::string(static_cast<std::size_t>(id % 50), 'x');
        event.attempts = attempts;
        courier.add(std::move(event));
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
        courier.work(now);
        EXPECT_EQ(receiver.started, receiver.sent.size());
    }

    void pass(Clock::duration time)
    {
        now += time;
        work();
    }

    // Says what has come of the parcel that holds this event.
    void answer(std::int64_t id, Verdict verdict,
                std::optional<std::chrono::seconds> retry_after = {})
    {
        for (std::size_t i = 0; i < receiver.on_the_way.size(); ++i) {
            const Ids ids = Receiver::ids_of(receiver.on_the_way[i]);
            if (std::ranges::find(ids, id) != ids.end()) {
                receiver.answer(i, verdict, "said of " + std::to_string(id), retry_after);
                return;
            }
        }
        ADD_FAILURE() << id << " is not on the way";
    }

    void deliver(std::initializer_list<std::int64_t> ids)
    {
        for (const std::int64_t id : ids)
            answer(id, Verdict::delivered);
        work();
    }

    void reject(std::int64_t id)
    {
        answer(id, Verdict::rejected);
        work();
    }

    // A moment later: what is heard of was not sent just now.
    void trouble(std::initializer_list<std::int64_t> ids)
    {
        now += 1ms;
        for (const std::int64_t id : ids)
            answer(id, Verdict::trouble);
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
        for (const Settlement& one : courier.settled())
            text += (text.empty() ? "" : " ") + std::to_string(one.handle.id) +
                    (one.delivered ? '+' : '-');
        return text;
    }

    Clock::duration pause() const { return courier.resume_at() - now; }

    // Once the pause is over, answers all that is on the way.
    void round(const std::function<Verdict(std::int64_t)>& verdict)
    {
        now = std::max(now, courier.resume_at());
        work();
        now += 1ms;
        while (!receiver.on_the_way.empty())
            answer(receiver.on_the_way.front().events.front()->id,
                   verdict(receiver.on_the_way.front().events.front()->id));
        work();
    }

    void expect_empty() const
    {
        EXPECT_EQ(courier.in_hand(), 0u);
        EXPECT_EQ(courier.on_the_way(), 0u);
        EXPECT_EQ(courier.bytes(), 0u);
    }

    Receiver receiver;
    double chance = 0;
    TimePoint now = TimePoint{} + 1h;
    LaneCourier courier;
};

constexpr auto fails = [](auto...) { return Verdict::trouble; };
constexpr auto works = [](auto...) { return Verdict::delivered; };

// ---- order

TEST(LaneCourier, WithOrderTheNextOfAnAggregateStartsWhenTheFirstIsDelivered)
{
    Stage stage;
    for (const std::int64_t id : {1, 2, 3})
        stage.add(id, "a");
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}}));
    stage.pass(1h);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}}));
    stage.deliver({1});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
    stage.trouble({2});
    stage.pass(1s);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
    stage.deliver({2});
    stage.deliver({3});
    EXPECT_EQ(stage.settled(), "1+ 2+ 3+");
    stage.expect_empty();
}

TEST(LaneCourier, AggregatesDoNotWaitForEachOther)
{
    Stage stage({.capacity = 10});
    for (const std::int64_t id : {1, 2, 3, 4, 5, 6})
        stage.add(id, id % 2 ? "odd" : "even");
    Event other;
    other.id = 7;
    other.aggregate_type = "customer";
    other.aggregate_id = "odd"; // the same id, but of something else
    stage.courier.add(other);
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {2}, {7}}));
    stage.deliver({2});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {7}, {4}}));
}

TEST(LaneCourier, WithoutOrderEverythingGoesUpToTheCapacity)
{
    Stage stage({.capacity = 3, .ordered = false});
    for (const std::int64_t id : {1, 2, 3, 4, 5})
        stage.add(id, "a");
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {2}, {3}}));
    EXPECT_EQ(stage.courier.on_the_way(), 3u);
    stage.deliver({2});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {3}, {4}}));
    stage.deliver({4, 3, 1});
    EXPECT_EQ(stage.settled(), "2+ 4+ 3+ 1+");
    EXPECT_EQ(stage.on_the_way(), (Parcels{{5}}));
}

TEST(LaneCourier, ASettlementNamesTheBatchAndSaysWhy)
{
    Stage stage;
    stage.add(1, "a", 77);
    stage.add(2, "b", 78);
    stage.work();
    stage.deliver({1});
    stage.reject(2);
    const auto& settled = stage.courier.settled();
    ASSERT_EQ(settled.size(), 2u);
    EXPECT_EQ(settled[0].handle.token, 77);
    EXPECT_EQ(settled[0].reason, "");
    EXPECT_EQ(settled[1].handle.token, 78);
    EXPECT_EQ(settled[1].reason, "said of 2");
    EXPECT_EQ(stage.courier.delivered(), 1u);
    EXPECT_EQ(stage.courier.rejected(), 1u);
    stage.courier.forget_settled(1);
    EXPECT_EQ(stage.settled(), "2-");
}

// ---- trouble

TEST(LaneCourier, InTroubleNothingIsSentUntilThePauseIsOver)
{
    Stage stage;
    stage.add_apart({1, 2, 3, 4, 5, 6});
    stage.trouble({1, 2, 3, 4});
    EXPECT_EQ(stage.pause(), 1s);
    EXPECT_EQ(stage.courier.last_trouble(), "said of 4");
    EXPECT_TRUE(stage.courier.is_backing_off(stage.now));
    stage.pass(1s - 1ns);
    EXPECT_EQ(stage.on_the_way(), Parcels{});
    stage.pass(1ns);
    EXPECT_FALSE(stage.courier.is_backing_off(stage.now));
    EXPECT_EQ(stage.on_the_way().size(), 2u);
    EXPECT_EQ(stage.settled(), "");
}

TEST(LaneCourier, TwoProbeUntilOneSucceeds)
{
    Stage stage;
    stage.add_apart({1, 2, 3, 4, 5, 6});
    stage.trouble({1, 2, 3, 4});
    stage.pass(1s);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{5}, {6}}));
    stage.pass(1h);
    EXPECT_EQ(stage.on_the_way().size(), 2u);
    stage.deliver({5});
    EXPECT_EQ(stage.on_the_way().size(), 4u);
    EXPECT_EQ(stage.courier.troubles(), 0);
}

TEST(LaneCourier, ASuccessEndsThePause)
{
    Stage stage;
    stage.add_apart({1, 2, 3, 4, 5, 6});
    stage.trouble({1});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}, {3}, {4}}));
    stage.deliver({2});
    EXPECT_FALSE(stage.courier.is_backing_off(stage.now));
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}, {4}, {5}, {6}}));
}

TEST(LaneCourier, ASinkThatTakesOneAtATimeIsProbedByOne)
{
    Stage stage({.capacity = 1});
    stage.add_apart({1, 2, 3});
    stage.trouble({1});
    stage.pass(1s);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
}

TEST(LaneCourier, WhatIsStillOnTheWayCountsAsAProbe)
{
    Stage stage;
    stage.add_apart({1, 2, 3, 4, 5});
    stage.trouble({1});
    stage.pass(1s);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}, {3}, {4}}));
    stage.deliver({3});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}, {4}, {5}, {1}}));
}

TEST(LaneCourier, PausesGrowUpToTheLimit)
{
    Stage stage;
    stage.add_apart({1, 2, 3, 4});
    for (const auto pause : {1s, 2s, 4s, 8s, 8s, 8s}) {
        stage.round(fails);
        EXPECT_EQ(stage.pause(), pause);
    }
    EXPECT_EQ(stage.courier.troubles(), 6);
    stage.round(works);
    EXPECT_EQ(stage.courier.troubles(), 0);
    EXPECT_FALSE(stage.courier.is_backing_off(stage.now));
    stage.round(fails);
    EXPECT_EQ(stage.pause(), 1s);
}

TEST(LaneCourier, ChanceShortensAPause)
{
    Stage stage;
    stage.chance = 0.5;
    stage.add_apart({1});
    stage.trouble({1});
    EXPECT_EQ(stage.pause(), 750ms);
}

TEST(LaneCourier, ARetryAtOnceLeavesTheSinkAMoment)
{
    Stage stage({}, {10, 3, 1'000'000, 8'000'000, 0});
    stage.add_apart({1});
    stage.trouble({1});
    EXPECT_EQ(stage.on_the_way(), Parcels{});
    EXPECT_GT(stage.pause(), 0ms);
    EXPECT_LT(stage.pause(), 100ms);
    for (int i = 0; i < 3; ++i)
        stage.round(fails);
    EXPECT_EQ(stage.pause(), 1s);
}

// backoff_max is the longest pause, also in an outage of many rounds.
TEST(LaneCourier, NoPauseIsLongerThanTheLimit)
{
    Stage stage({}, {10, 0, 50'000, 100'000, 0});
    stage.add_apart({1});
    for (int i = 0; i < 100; ++i) {
        stage.round(fails);
        ASSERT_LE(stage.pause(), 100ms) << i;
    }
}

TEST(LaneCourier, WhatWasSentBeforeTheTroubleCountsOnce)
{
    Stage stage({.capacity = 16});
    stage.add_apart({1, 2, 3, 4, 5, 6, 7, 8});
    stage.trouble({1, 2});
    const TimePoint resume_at = stage.courier.resume_at();
    stage.trouble({3});
    stage.pass(500ms);
    stage.trouble({4, 5});
    stage.pass(1s);
    stage.trouble({6, 7, 8});
    EXPECT_EQ(stage.courier.troubles(), 1);
    EXPECT_EQ(stage.courier.resume_at(), resume_at);
    stage.trouble({1, 2});
    EXPECT_EQ(stage.courier.troubles(), 2);
}

TEST(LaneCourier, RetryAfterIsHonoured)
{
    Stage stage;
    stage.add_apart({1, 2});
    stage.answer(1, Verdict::trouble, 30s);
    stage.pass(1ms);
    EXPECT_EQ(stage.pause(), 30s);
    stage.pass(30s - 1ns);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
    stage.pass(1ns);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}, {1}}));
}

TEST(LaneCourier, RetryAfterDoesNotShortenAPause)
{
    Stage stage;
    stage.add_apart({1, 2});
    stage.answer(1, Verdict::trouble, 5s);
    stage.answer(2, Verdict::trouble, 0s);
    stage.pass(1ms);
    EXPECT_EQ(stage.pause(), 5s);
    stage.pass(5s);
    stage.now += 1ms;
    stage.answer(1, Verdict::trouble, 0s);
    stage.work();
    EXPECT_EQ(stage.pause(), 2s);
}

TEST(LaneCourier, RetryAfterIsHonouredThoughOthersSucceed)
{
    Stage stage;
    stage.add_apart({1, 2, 3, 4, 5});
    stage.answer(1, Verdict::trouble, 30s);
    stage.pass(1ms);
    stage.deliver({2, 3});
    EXPECT_EQ(stage.courier.troubles(), 0);
    EXPECT_TRUE(stage.courier.is_backing_off(stage.now));
    stage.pass(29s);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{4}}));
    stage.pass(1s);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{4}, {5}, {1}}));
}

// ---- blame

TEST(LaneCourier, AnEventThatAloneMeetsTroubleAgainAndAgainIsRejected)
{
    Stage stage({.capacity = 2});
    stage.add_apart({1});
    for (std::int64_t next = 10; stage.courier.rejected() == 0 && next < 50; ++next) {
        stage.add_apart({next});
        stage.round([](std::int64_t id) { return id == 1 ? fails() : works(); });
    }
    EXPECT_EQ(stage.courier.rejected(), 1u);
    EXPECT_NE(stage.settled().find("1-"), std::string::npos);
    EXPECT_EQ(stage.receiver.times_sent(1), 3u);
    stage.round(works);
    EXPECT_EQ(stage.courier.troubles(), 0);
    EXPECT_FALSE(stage.courier.is_backing_off(stage.now));
    stage.expect_empty();
}

TEST(LaneCourier, TheSinkIsNotInTroubleForTheSakeOfOneEvent)
{
    Stage stage;
    stage.add(1, "bad", 1, 2);
    stage.add_apart({2, 3, 4, 5, 6, 7});
    stage.deliver({2});
    stage.trouble({1});
    ASSERT_EQ(stage.settled(), "2+ 1-");
    EXPECT_EQ(stage.courier.settled()[1].reason, "said of 1");
    EXPECT_EQ(stage.courier.troubles(), 0);
    EXPECT_EQ(stage.courier.last_trouble(), "");
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}, {4}, {5}, {6}}));
}

TEST(LaneCourier, TroubleThatMeetsEverybodyRejectsNobody)
{
    Stage stage;
    stage.add_apart({1, 2, 3, 4, 5, 6});
    stage.deliver({1, 2});
    for (int i = 0; i < 50; ++i)
        stage.round(fails);
    EXPECT_EQ(stage.courier.rejected(), 0u);
    for (int i = 0; i < 3; ++i)
        stage.round(works);
    EXPECT_EQ(stage.courier.rejected(), 0u);
    EXPECT_EQ(stage.courier.delivered(), 6u);
    stage.expect_empty();
}

TEST(LaneCourier, OneThatFailedBeforeIsBlamedSooner)
{
    for (const int attempts : {1, 2, 7}) {
        Stage stage({.capacity = 2});
        stage.add(1, "bad", 1, attempts);
        for (std::int64_t next = 10; stage.courier.rejected() == 0 && next < 50; ++next) {
            stage.add_apart({next});
            stage.round([](std::int64_t id) { return id == 1 ? fails() : works(); });
        }
        EXPECT_EQ(stage.courier.rejected(), 1u);
        EXPECT_EQ(stage.receiver.times_sent(1), attempts > 1 ? 2u : 3u) << attempts;
    }
}

TEST(LaneCourier, OneThatFailedBeforeIsNotBlamedWhenNobodySucceeds)
{
    Stage stage;
    stage.add(1, "bad", 1, 2);
    stage.add_apart({2, 3});
    for (int i = 0; i < 20; ++i)
        stage.round(fails);
    EXPECT_EQ(stage.courier.rejected(), 0u);
}

TEST(LaneCourier, BetweenTwoProbesOfOneOthersHaveTheirTurn)
{
    Stage stage({.capacity = 1, .parcel_size = 2});
    stage.add(1, "a");
    stage.add(2, "a");
    stage.work();
    stage.add_apart({3, 4, 5});
    stage.trouble({1});
    std::set<std::int64_t> tried;
    for (int i = 0; i < 4; ++i) {
        stage.pass(stage.pause());
        tried.insert(stage.on_the_way().at(0).at(0));
        stage.trouble({stage.on_the_way().at(0).at(0)});
    }
    EXPECT_TRUE(tried.contains(1));
    EXPECT_GT(tried.size(), 1u);
}

// After a first failure one more is brought whenever the courier wants more, as the relay does.
void expect_bad_ones_to_be_rejected(Stage& stage, std::size_t bad)
{
    std::int64_t next = 1000;
    stage.round(fails);
    for (int i = 0; i < 100 && stage.courier.rejected() < bad; ++i) {
        stage.now = std::max(stage.now, stage.courier.resume_at());
        if (stage.courier.wants_more(stage.now))
            stage.add_apart({next++});
        stage.round([](std::int64_t id) { return id < 1000 ? fails() : works(); });
    }
    EXPECT_EQ(stage.courier.rejected(), bad);
}

TEST(LaneCourier, OneBadEventDoesNotKeepTheOthersAway)
{
    Stage stage;
    stage.add_apart({1});
    expect_bad_ones_to_be_rejected(stage, 1);
}

TEST(LaneCourier, TwoBadEventsDoNotKeepTheOthersAway)
{
    Stage stage;
    stage.add_apart({1, 2});
    expect_bad_ones_to_be_rejected(stage, 2);
}

// The answer to the parcel is that to its first event.
TEST(LaneCourier, ABadParcelDoesNotKeepTheOthersAway)
{
    Stage stage({.parcel_size = 3});
    stage.add_apart({1, 2001, 2002});
    expect_bad_ones_to_be_rejected(stage, 1);
}

TEST(LaneCourier, TroubleThatIsNoEventsOwnRejectsNobody)
{
    for (const int attempts : {1, 2}) {
        Stage stage({.capacity = 2, .parcel_size = 2, .may_be_its_own = false});
        stage.add(1, "a", 1, attempts);
        stage.add(2, "a", 1, attempts);
        stage.add(3, "c", 1, attempts);
        for (std::int64_t next = 10; next < 30; ++next) {
            stage.add_apart({next});
            stage.round([](std::int64_t id) { return id < 10 ? fails() : works(); });
        }
        EXPECT_EQ(stage.courier.rejected(), 0u);
        EXPECT_GT(stage.courier.delivered(), 5u);
        EXPECT_GT(stage.receiver.times_sent(1), 5u);
        for (int i = 0; i < 20; ++i)
            stage.round(works);
        EXPECT_EQ(stage.courier.rejected(), 0u);
        stage.expect_empty();
    }
}

// ---- rejected

TEST(LaneCourier, ARejectedEventHoldsItsLane)
{
    Stage stage;
    for (const std::int64_t id : {1, 2, 3, 4})
        stage.add(id, "a", id < 3 ? 10 : 11);
    stage.add_apart({9});
    stage.reject(1);
    stage.add(5, "a", 11);
    stage.pass(1h);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{9}}));
    const Settlement rejected = stage.courier.settled().at(0);
    Ids behind;
    for (const Handle& handle : stage.courier.behind(rejected)) {
        behind.push_back(handle.id);
        EXPECT_EQ(handle.token, handle.id < 3 ? 10 : 11);
    }
    EXPECT_EQ(behind, (Ids{2, 3, 4, 5}));

    stage.courier.forget_settled(1);
    stage.pass(1h);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{9}}));
    stage.courier.go_on_behind(rejected, Ids{2, 4});
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{9}, {3}}));
    stage.deliver({9, 3});
    stage.deliver({5});
    EXPECT_EQ(stage.settled(), "9+ 3+ 5+");
    stage.expect_empty();
}

TEST(LaneCourier, WhenAllBehindARejectedEventIsParkedTheLaneIsFree)
{
    Stage stage;
    stage.add(1, "a");
    stage.add(2, "a");
    stage.work();
    stage.reject(1);
    stage.courier.go_on_behind(stage.courier.settled().at(0), Ids{2});
    stage.expect_empty();
    stage.add(3, "a");
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}}));
}

TEST(LaneCourier, ALaneIsHeldAlsoWhenNothingIsBehindYet)
{
    Stage stage;
    stage.add_apart({1});
    stage.reject(1);
    stage.add(2, "of 1");
    stage.work();
    EXPECT_EQ(stage.on_the_way(), Parcels{});
    stage.courier.go_on_behind(stage.courier.settled().at(0), {});
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
}

TEST(LaneCourier, WithoutOrderARejectedEventHoldsNobody)
{
    Stage stage({.capacity = 1, .ordered = false});
    stage.add(1, "a");
    stage.add(2, "a");
    stage.work();
    stage.reject(1);
    EXPECT_TRUE(stage.courier.behind(stage.courier.settled().at(0)).empty());
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
}

// ---- parcels

TEST(LaneCourier, AParcelIsFilledFromManyAggregates)
{
    Stage stage({.capacity = 2, .parcel_size = 4});
    for (const std::int64_t id : {1, 2, 3})
        stage.add(id, "a");
    stage.add_apart({4, 5, 6});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1, 2, 3, 4}, {5, 6}}));
    stage.deliver({1});
    EXPECT_EQ(stage.settled(), "1+ 2+ 3+ 4+");
    EXPECT_EQ(stage.courier.in_hand(), 2u);
}

TEST(LaneCourier, AParcelHasWhatALaneHasInItsOrderAndTheRestWaits)
{
    Stage stage({.parcel_size = 2});
    for (const std::int64_t id : {1, 2, 3, 4, 5})
        stage.add(id, "a");
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1, 2}}));
    stage.deliver({1});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3, 4}}));
}

TEST(LaneCourier, AParcelThatMetTroubleGoesAgainWithTheSameEvents)
{
    Stage stage({.capacity = 2, .parcel_size = 3});
    stage.add(1, "a");
    stage.add_apart({2, 3});
    for (int i = 0; i < 5; ++i) {
        stage.trouble({2});
        EXPECT_EQ(stage.on_the_way(), Parcels{});
        stage.add(4 + i, "a");
        stage.pass(stage.pause());
        EXPECT_EQ(stage.on_the_way(), (Parcels{{1, 2, 3}}));
    }
    stage.deliver({1});
    EXPECT_EQ(stage.settled(), "1+ 2+ 3+");
    EXPECT_EQ(stage.on_the_way(), (Parcels{{4, 5, 6}}));
}

TEST(LaneCourier, InTroubleNewParcelsHoldOneEvent)
{
    Stage stage({.capacity = 2, .parcel_size = 3});
    stage.add_apart({1});
    stage.add_apart({2, 3, 4, 5, 6, 7});
    stage.trouble({1});
    stage.pass(1s);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2, 3, 4}, {5}}));
    stage.deliver({2});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{5}, {6, 7, 1}}));
}

TEST(LaneCourier, ARejectedParcelGoesApart)
{
    Stage stage({.capacity = 3, .parcel_size = 4});
    stage.add(1, "a");
    stage.add(2, "a");
    stage.add_apart({3});
    stage.add(4, "a");
    stage.add(5, "a");
    ASSERT_EQ(stage.on_the_way(), (Parcels{{1, 2, 3}}));
    stage.reject(1);
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.courier.troubles(), 0);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {3}}));
    stage.deliver({1});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}, {2}}));
    stage.reject(2);
    EXPECT_EQ(stage.settled(), "1+ 2-");
    stage.deliver({3});
    stage.courier.go_on_behind(stage.courier.settled().at(1), {});
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{4, 5}})); // they were never in bad company
}

TEST(LaneCourier, WhatGoesAloneTakesNobodyAlong)
{
    Stage stage({.capacity = 1, .parcel_size = 2});
    stage.add_apart({1, 2, 3});
    stage.reject(1);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}})); // 1 was next, but not in company
    stage.deliver({3});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}}));
    stage.add_apart({4});
    stage.deliver({1});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
    stage.deliver({2});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{4}}));
}

TEST(LaneCourier, AParcelThatAloneMeetsTroubleAgainAndAgainGoesApart)
{
    Stage stage({.capacity = 2, .parcel_size = 2});
    stage.add_apart({1, 2});
    const auto one_is_bad = [](std::int64_t id) { return id == 1 ? fails() : works(); };
    for (std::int64_t next = 10; stage.courier.rejected() == 0 && next < 100; ++next) {
        stage.add_apart({next});
        stage.round(one_is_bad);
    }
    EXPECT_EQ(stage.courier.rejected(), 1u);
    for (int i = 0; i < 3; ++i)
        stage.round(works);
    EXPECT_NE(stage.settled().find("1-"), std::string::npos);
    EXPECT_NE(stage.settled().find("2+"), std::string::npos);
    stage.expect_empty();
}

// ---- a lost lease

TEST(LaneCourier, WhatWaitsOfALostBatchIsForgotten)
{
    Stage stage({.capacity = 1});
    stage.add_apart({1}, 10);
    stage.add(2, "of 1", 11);
    stage.add(3, "of 1", 12);
    stage.add(4, "b", 11);
    stage.courier.drop_batch(11);
    EXPECT_EQ(stage.courier.in_hand(), 2u);
    stage.deliver({1});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}}));
    stage.deliver({3});
    EXPECT_EQ(stage.settled(), "1+ 3+");
    EXPECT_EQ(stage.receiver.sent, (Parcels{{1}, {3}}));
    stage.expect_empty();
}

TEST(LaneCourier, WhatComesOfALostBatchIsIgnored)
{
    for (const Verdict verdict : {Verdict::delivered, Verdict::rejected, Verdict::trouble}) {
        Stage stage;
        stage.add(1, "a", 10);
        stage.add(2, "a", 11);
        stage.work();
        stage.courier.drop_batch(10);
        stage.pass(1s);
        EXPECT_EQ(stage.on_the_way(), (Parcels{{1}})); // it may still arrive: 2 waits
        stage.answer(1, verdict);
        stage.pass(1ms);
        EXPECT_EQ(stage.settled(), "");
        stage.pass(1s);
        EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
        stage.deliver({2});
        EXPECT_EQ(stage.settled(), "2+");
        EXPECT_EQ(stage.receiver.times_sent(1), 1u);
        stage.expect_empty();
    }
}

TEST(LaneCourier, TheSameEventInANewBatchWaitsForTheOldOne)
{
    for (const bool ordered : {true, false}) {
        Stage stage({.ordered = ordered});
        stage.add(1, "a", 10);
        stage.work();
        stage.courier.drop_batch(10);
        stage.add(1, "a", 11);
        stage.work();
        EXPECT_EQ(stage.on_the_way(), (Parcels{{1}}));
        stage.deliver({1});
        EXPECT_EQ(stage.settled(), "");
        stage.deliver({1});
        ASSERT_EQ(stage.settled(), "1+");
        EXPECT_EQ(stage.courier.settled()[0].handle.token, 11);
        stage.expect_empty();
    }
}

TEST(LaneCourier, WhatIsSettledOfALostBatchIsForgottenAndHoldsNobody)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.add_apart({3}, 10);
    stage.add_apart({4}, 11);
    stage.reject(1);
    stage.deliver({3, 4});
    EXPECT_EQ(stage.settled(), "1- 3+ 4+");
    stage.courier.drop_batch(10);
    EXPECT_EQ(stage.settled(), "4+");
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
}

TEST(LaneCourier, TheHoldOfAnotherBatchStays)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.add(3, "a", 12);
    stage.work();
    stage.reject(1);
    stage.courier.drop_batch(11);
    stage.pass(1s);
    EXPECT_EQ(stage.on_the_way(), Parcels{});
    stage.courier.go_on_behind(stage.courier.settled().at(0), {});
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}}));
}

TEST(LaneCourier, WhoSharedAParcelWithALostBatchIsSettledOrGoesAgain)
{
    for (const Verdict verdict : {Verdict::delivered, Verdict::rejected, Verdict::trouble}) {
        Stage stage({.parcel_size = 4});
        stage.add(1, "a", 10);
        stage.add(2, "a", 11);
        stage.add(3, "b", 10);
        stage.add(4, "c", 11);
        stage.work();
        ASSERT_EQ(stage.on_the_way(), (Parcels{{1, 2, 3, 4}}));
        stage.courier.drop_batch(10);
        stage.answer(1, verdict);
        stage.pass(1ms);
        for (int i = 0; i < 3; ++i)
            stage.round(works);
        EXPECT_EQ(stage.settled(), "2+ 4+");
        EXPECT_EQ(stage.receiver.times_sent(1), 1u);
        EXPECT_EQ(stage.receiver.times_sent(3), 1u);
        stage.expect_empty();
    }
}

TEST(LaneCourier, AParcelThatCameBackGoesOnWithoutTheLostBatch)
{
    Stage stage({.parcel_size = 4});
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.add(3, "b", 10);
    stage.work();
    stage.trouble({1});
    stage.courier.drop_batch(10);
    EXPECT_EQ(stage.courier.in_hand(), 1u);
    for (int i = 0; i < 3; ++i)
        stage.round(works);
    EXPECT_EQ(stage.settled(), "2+");
    stage.expect_empty();
}

// ---- the end

TEST(LaneCourier, WhoIsGoneGetsNothingMore)
{
    Stage stage;
    stage.add_apart({1, 2, 3, 4, 5});
    EXPECT_FALSE(stage.courier.gone());
    stage.answer(1, Verdict::gone);
    stage.deliver({2});
    EXPECT_EQ(stage.courier.gone(), "said of 1");
    EXPECT_EQ(stage.courier.last_trouble(), "said of 1");
    stage.pass(1h);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}, {4}}));
    EXPECT_FALSE(stage.courier.wants_more(stage.now));
    stage.deliver({3, 4});
    EXPECT_EQ(stage.settled(), "2+ 3+ 4+");
    EXPECT_EQ(stage.courier.in_hand(), 2u); // nobody was rejected
}

TEST(LaneCourier, WhoFinishesSendsNothingMoreButListens)
{
    Stage stage;
    stage.add_apart({1, 2, 3, 4, 5});
    stage.courier.finish();
    stage.deliver({1});
    stage.trouble({2});
    stage.pass(1h);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}, {4}}));
    stage.deliver({3, 4});
    EXPECT_EQ(stage.settled(), "1+ 3+ 4+");
    EXPECT_EQ(stage.courier.on_the_way(), 0u);
    EXPECT_EQ(stage.courier.in_hand(), 2u);
}

TEST(LaneCourier, WhoAbandonsHasNothingInHand)
{
    Stage stage({.parcel_size = 2});
    stage.add_apart({1});
    stage.add_apart({2, 3});
    stage.add_apart({4});
    stage.deliver({4});
    stage.add(5, "of 1");
    stage.trouble({2});
    stage.add_apart({6});
    stage.answer(1, Verdict::rejected); // comes too late
    stage.courier.abandon();
    EXPECT_TRUE(stage.courier.is_backing_off(stage.now)); // nothing has changed about that
    EXPECT_EQ(stage.courier.next_work(), std::nullopt);
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.on_the_way(), Parcels{});
    stage.expect_empty();
    stage.pass(1h);
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.on_the_way(), Parcels{});
    stage.add_apart({1, 2});
    stage.round(works);
    EXPECT_EQ(stage.settled(), "1+ 2+");
    stage.expect_empty();
}

// ---- how much, and when

TEST(LaneCourier, CountsWhatIsInHand)
{
    Stage stage;
    EXPECT_EQ(stage.courier.bytes(), 0u);
    Event event;
    event.id = 1;
    event.payload = std::string(1000, 'x');
    const std::size_t size = event.size();
    stage.courier.add(event);
    EXPECT_EQ(stage.courier.bytes(), size);
    stage.add(2, "b");
    EXPECT_GT(stage.courier.bytes(), size + sizeof(Event) - 1);
    EXPECT_EQ(stage.courier.in_hand(), 2u);
    stage.work();
    EXPECT_EQ(stage.courier.in_hand(), 2u);
    stage.reject(2);
    EXPECT_EQ(stage.courier.bytes(), size);
    stage.deliver({1});
    stage.expect_empty();
}

TEST(LaneCourier, WantsEnoughToKeepTheSinkBusy)
{
    EXPECT_EQ(Stage({.capacity = 1}).courier.wanted(), 256u);
    EXPECT_EQ(Stage({.capacity = 100}).courier.wanted(), 400u);
    EXPECT_EQ(Stage({.capacity = 16, .parcel_size = 100}).courier.wanted(), 6400u);
    EXPECT_EQ(Stage({.capacity = 256, .parcel_size = 10'000}).courier.wanted(), 10'000u);

    Stage stage;
    for (std::int64_t id = 1; stage.courier.wants_more(stage.now) && id < 1000; ++id)
        stage.add(id, "of " + std::to_string(id));
    EXPECT_EQ(stage.courier.in_hand(), stage.courier.wanted() / 2);
}

TEST(LaneCourier, AHotAggregateDoesNotKeepTheOthersAway)
{
    Stage stage;
    std::int64_t id = 1;
    for (; id <= 5000; ++id)
        stage.add(id, "hot");
    EXPECT_TRUE(stage.courier.wants_more(stage.now));
    for (const char* aggregate : {"b", "c", "d"})
        stage.add(id++, aggregate);
    EXPECT_FALSE(stage.courier.wants_more(stage.now));

    Stage full;
    for (id = 1; full.courier.wants_more(full.now) && id < 20'000; ++id)
        full.add(id, "hot");
    EXPECT_EQ(full.courier.in_hand(), 10'000u);
}

TEST(LaneCourier, InTroubleItWantsNoMoreThanProbes)
{
    Stage stage;
    stage.add_apart({1});
    stage.trouble({1});
    EXPECT_FALSE(stage.courier.wants_more(stage.now));
    stage.now += 1s;
    EXPECT_TRUE(stage.courier.wants_more(stage.now));
    stage.add_apart({2});
    EXPECT_FALSE(stage.courier.wants_more(stage.now));
    stage.deliver({1});
    EXPECT_TRUE(stage.courier.wants_more(stage.now));
}

TEST(LaneCourier, IsToWorkWhenThePauseEnds)
{
    Stage stage;
    EXPECT_EQ(stage.courier.next_work(), std::nullopt);
    stage.receiver.next_work = stage.now + 5s;
    EXPECT_EQ(stage.courier.next_work(), stage.now + 5s);
    stage.add_apart({1, 2, 3});
    stage.trouble({1});
    EXPECT_EQ(stage.courier.next_work(), stage.now + 5s - 1ms); // two are on the way
    stage.trouble({2});
    EXPECT_EQ(stage.courier.next_work(), stage.courier.resume_at());
    stage.receiver.next_work = std::nullopt;
    EXPECT_EQ(stage.courier.next_work(), stage.courier.resume_at());
    stage.receiver.next_work = stage.now + 1ms;
    EXPECT_EQ(stage.courier.next_work(), stage.now + 1ms);
}

TEST(LaneCourier, WithNothingToSendThePauseIsNoReasonToWork)
{
    Stage stage;
    stage.add_apart({1, 2});
    stage.answer(1, Verdict::trouble, 1s);
    stage.pass(1ms);
    stage.pass(1s);
    stage.deliver({1, 2});
    stage.expect_empty();
    EXPECT_EQ(stage.courier.next_work(), std::nullopt);
}

TEST(LaneCourier, PassesOnWhatTheSinkHas)
{
    Stage stage;
    EXPECT_EQ(stage.courier.descriptor(), 42);
    EXPECT_EQ(stage.courier.metadata(), std::vector<std::string>{"region"});
}

// ---- all of it, by chance

// Plays the relay and the receiver, and remembers what is still to be said of which event.
class Play {
public:
    Play(unsigned seed, const Receiver& setting) : stage_(setting), dice_(seed) {}

    void step()
    {
        const int what = throw_dice(100);
        if (what < 30)
            claim();
        else if (what < 70)
            answer_one();
        else if (what < 85)
            stage_.now += std::chrono::milliseconds(throw_dice(2000));
        else if (what < 98)
            settle();
        else if (what < 99)
            drop(1 + throw_dice(static_cast<int>(token_)));
        else if (throw_dice(10) == 0)
            abandon();
        stage_.work();
        EXPECT_EQ(stage_.courier.on_the_way(), stage_.receiver.on_the_way.size());
        EXPECT_EQ(stage_.courier.bytes() == 0, stage_.courier.in_hand() == 0);
    }

    // From now on the sink works.
    void recover()
    {
        for (int i = 0; i < 2000 && stage_.courier.in_hand() > 0; ++i) {
            stage_.round(works);
            settle();
        }
        settle();
        stage_.expect_empty();
        EXPECT_TRUE(open_.empty()) << open_.size() << " are stuck";
    }

    std::size_t settled() const { return settled_; }

private:
    using Key = std::pair<std::int64_t, std::int64_t>; // token and id

    int throw_dice(int sides) { return std::uniform_int_distribution(0, sides - 1)(dice_); }

    void claim()
    {
        if (!stage_.courier.wants_more(stage_.now) || stage_.courier.in_hand() > 60)
            return;
        ++token_;
        for (int i = throw_dice(8); i >= 0; --i) {
            const std::string aggregate = std::to_string(throw_dice(12));
            const std::int64_t id = ++id_;
            open_[{token_, id}] = aggregate;
            stage_.add(id, aggregate, token_, throw_dice(20) == 0 ? 2 : 1);
        }
    }

    void answer_one()
    {
        auto& receiver = stage_.receiver;
        if (receiver.on_the_way.empty())
            return;
        const auto index =
            static_cast<std::size_t>(throw_dice(static_cast<int>(receiver.on_the_way.size())));
        const int luck = throw_dice(100);
        if (luck < 70)
            receiver.answer(index, Verdict::delivered, "", {});
        else if (luck < 80)
            receiver.answer(index, Verdict::rejected, "bad", {});
        else if (luck < 95)
            receiver.answer(index, Verdict::trouble, "busy", {});
        else
            receiver.answer(index, Verdict::trouble, "busy", std::chrono::seconds(throw_dice(5)));
    }

    // Writes down what is settled; some of what is behind a rejected event is parked.
    void settle()
    {
        const std::vector<Settlement> settled = stage_.courier.settled();
        stage_.courier.forget_settled(settled.size());
        for (const Settlement& one : settled) {
            const auto found = open_.find({one.handle.token, one.handle.id});
            ASSERT_NE(found, open_.end()) << one.handle.id << " was settled before";
            if (stage_.receiver.ordered) {
                auto& last = last_[found->second];
                EXPECT_LT(last, one.handle.id) << "out of order";
                last = one.handle.id;
            }
            open_.erase(found);
            ++settled_;
        }
        for (const Settlement& one : settled) {
            if (one.delivered)
                continue;
            Ids parked;
            for (const Handle& handle : stage_.courier.behind(one))
                if (throw_dice(2) == 0) {
                    parked.push_back(handle.id);
                    open_.erase({handle.token, handle.id});
                }
            stage_.courier.go_on_behind(one, parked);
        }
    }

    void drop(std::int64_t token)
    {
        settle();
        stage_.courier.drop_batch(token);
        std::erase_if(open_, [&](const auto& one) { return one.first.first == token; });
    }

    void abandon()
    {
        stage_.courier.abandon();
        stage_.expect_empty();
        open_.clear();
    }

    Stage stage_;
    std::mt19937 dice_;
    std::int64_t token_ = 0;
    std::int64_t id_ = 0;
    std::map<Key, std::string> open_;
    std::map<std::string, std::int64_t> last_;
    std::size_t settled_ = 0;
};

TEST(LaneCourier, WhateverHappensNothingIsLostOrSettledTwiceOrOvertaken)
{
    for (unsigned seed = 1; seed <= 24 && !HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        Play play(seed, {.capacity = 1 + seed % 5,
                         .parcel_size = seed % 3 == 0 ? 1 : seed % 3 * 2,
                         .ordered = seed % 4 != 0});
        for (int i = 0; i < 3000 && !HasFailure(); ++i)
            play.step();
        play.recover();
        EXPECT_GT(play.settled(), 200u);
    }
}

} // namespace
