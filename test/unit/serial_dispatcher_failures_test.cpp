#include "dispatcher_stage.hpp"
#include "sink/dispatch/serial_dispatcher.hpp"

#include <set>

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;

using Stage = test::Stage<SerialDispatcher>;

// ---- failures of the sink

TEST(SerialDispatcher, TwoRequestsProbeAFailingSinkUntilOneIsDelivered)
{
    Stage stage;
    stage.add_apart({1, 2, 3, 4, 5, 6});
    stage.fail({1, 2, 3, 4});
    stage.advance_clock(1s);
    EXPECT_EQ(stage.in_flight(), (Requests{{5}, {6}}));
    stage.advance_clock(1h);
    EXPECT_EQ(stage.in_flight().size(), 2u);
    stage.deliver({5});
    EXPECT_EQ(stage.in_flight().size(), 4u);
    EXPECT_EQ(stage.dispatcher.consecutive_failures(), 0);
}

TEST(SerialDispatcher, ASinkWithOneRequestInFlightIsProbedByOne)
{
    Stage stage({.max_in_flight = 1});
    stage.add_apart({1, 2, 3});
    stage.fail({1});
    stage.advance_clock(1s);
    EXPECT_EQ(stage.in_flight(), (Requests{{2}}));
}

TEST(SerialDispatcher, ARequestInFlightCountsAsAProbe)
{
    Stage stage;
    stage.add_apart({1, 2, 3, 4, 5});
    stage.fail({1});
    stage.advance_clock(1s);
    EXPECT_EQ(stage.in_flight(), (Requests{{2}, {3}, {4}}));
    stage.deliver({3});
    EXPECT_EQ(stage.in_flight(), (Requests{{2}, {4}, {5}, {1}}));
}

TEST(SerialDispatcher, PausesGrowUpToTheLimit)
{
    Stage stage;
    stage.add_apart({1, 2, 3, 4});
    for (const auto pause : {1s, 2s, 4s, 8s, 8s, 8s}) {
        stage.round(fails);
        EXPECT_EQ(stage.pause(), pause);
    }
    EXPECT_EQ(stage.dispatcher.consecutive_failures(), 6);
    stage.round(works);
    EXPECT_EQ(stage.dispatcher.consecutive_failures(), 0);
    EXPECT_FALSE(stage.dispatcher.is_backing_off(stage.now));
    stage.round(fails);
    EXPECT_EQ(stage.pause(), 1s);
}

TEST(SerialDispatcher, JitterShortensAPause)
{
    Stage stage;
    stage.jitter = 0.5;
    stage.add_apart({1});
    stage.fail({1});
    EXPECT_EQ(stage.pause(), 750ms);
}

TEST(SerialDispatcher, AnImmediateRetryStillWaitsTheMinimumPause)
{
    Stage stage({}, {10, 3, 1'000'000, 8'000'000, 0});
    stage.add_apart({1});
    stage.fail({1});
    EXPECT_EQ(stage.in_flight(), Requests{});
    EXPECT_GT(stage.pause(), 0ms);
    EXPECT_LT(stage.pause(), 100ms);
    for (int i = 0; i < 3; ++i)
        stage.round(fails);
    EXPECT_EQ(stage.pause(), 1s);
}

// backoff_max limits every pause, even in an outage of many rounds.
TEST(SerialDispatcher, NoPauseIsLongerThanTheLimit)
{
    Stage stage({}, {10, 0, 50'000, 100'000, 0});
    stage.add_apart({1});
    for (int i = 0; i < 100; ++i) {
        stage.round(fails);
        ASSERT_LE(stage.pause(), 100ms) << i;
    }
}

TEST(SerialDispatcher, RequestsSentBeforeAFailureCountAsOneFailure)
{
    Stage stage({.max_in_flight = 16});
    stage.add_apart({1, 2, 3, 4, 5, 6, 7, 8});
    stage.fail({1, 2});
    const TimePoint resume_at = stage.dispatcher.resume_at();
    stage.fail({3});
    stage.advance_clock(500ms);
    stage.fail({4, 5});
    stage.advance_clock(1s);
    stage.fail({6, 7, 8});
    EXPECT_EQ(stage.dispatcher.consecutive_failures(), 1);
    EXPECT_EQ(stage.dispatcher.resume_at(), resume_at);
    stage.fail({1, 2});
    EXPECT_EQ(stage.dispatcher.consecutive_failures(), 2);
}

TEST(SerialDispatcher, RetryAfterExtendsThePause)
{
    Stage stage;
    stage.add_apart({1, 2});
    stage.answer(1, DeliveryStatus::unavailable, 30s);
    stage.advance_clock(1ms);
    EXPECT_EQ(stage.pause(), 30s);
    stage.advance_clock(30s - 1ns);
    EXPECT_EQ(stage.in_flight(), (Requests{{2}}));
    stage.advance_clock(1ns);
    EXPECT_EQ(stage.in_flight(), (Requests{{2}, {1}}));
}

TEST(SerialDispatcher, RetryAfterDoesNotShortenAPause)
{
    Stage stage;
    stage.add_apart({1, 2});
    stage.answer(1, DeliveryStatus::unavailable, 5s);
    stage.answer(2, DeliveryStatus::unavailable, 0s);
    stage.advance_clock(1ms);
    EXPECT_EQ(stage.pause(), 5s);
    stage.advance_clock(5s);
    stage.now += 1ms;
    stage.answer(1, DeliveryStatus::unavailable, 0s);
    stage.poll();
    EXPECT_EQ(stage.pause(), 2s);
}

TEST(SerialDispatcher, RetryAfterPausesTheSinkAlthoughOtherRequestsSucceed)
{
    Stage stage;
    stage.add_apart({1, 2, 3, 4, 5});
    stage.answer(1, DeliveryStatus::unavailable, 30s);
    stage.advance_clock(1ms);
    stage.deliver({2, 3});
    EXPECT_EQ(stage.dispatcher.consecutive_failures(), 0);
    EXPECT_TRUE(stage.dispatcher.is_backing_off(stage.now));
    stage.advance_clock(29s);
    EXPECT_EQ(stage.in_flight(), (Requests{{4}}));
    stage.advance_clock(1s);
    EXPECT_EQ(stage.in_flight(), (Requests{{4}, {5}, {1}}));
}

// ---- poison events

TEST(SerialDispatcher, AnEventThatFailsRepeatedlyWhileOthersSucceedIsRejected)
{
    Stage stage({.max_in_flight = 2});
    stage.add_apart({1});
    for (std::int64_t next = 10; stage.dispatcher.rejected() == 0 && next < 50; ++next) {
        stage.add_apart({next});
        stage.round([](std::int64_t id) { return id == 1 ? fails() : works(); });
    }
    EXPECT_EQ(stage.dispatcher.rejected(), 1u);
    EXPECT_NE(stage.settled().find("1-"), std::string::npos);
    EXPECT_EQ(stage.receiver.times_sent(1), 3u);
    stage.round(works);
    EXPECT_EQ(stage.dispatcher.consecutive_failures(), 0);
    EXPECT_FALSE(stage.dispatcher.is_backing_off(stage.now));
    stage.expect_empty();
}

TEST(SerialDispatcher, OnePoisonEventDoesNotMakeTheSinkUnavailable)
{
    Stage stage;
    stage.add(1, "bad", 1, 2);
    stage.add_apart({2, 3, 4, 5, 6, 7});
    stage.deliver({2});
    stage.fail({1});
    ASSERT_EQ(stage.settled(), "2+ 1-");
    EXPECT_EQ(stage.dispatcher.settled()[1].reason, "said of 1");
    EXPECT_EQ(stage.dispatcher.consecutive_failures(), 0);
    EXPECT_EQ(stage.dispatcher.last_error(), "");
    EXPECT_EQ(stage.in_flight(), (Requests{{3}, {4}, {5}, {6}}));
}

TEST(SerialDispatcher, AFailureOfAllEventsRejectsNone)
{
    Stage stage;
    stage.add_apart({1, 2, 3, 4, 5, 6});
    stage.deliver({1, 2});
    for (int i = 0; i < 50; ++i)
        stage.round(fails);
    EXPECT_EQ(stage.dispatcher.rejected(), 0u);
    for (int i = 0; i < 3; ++i)
        stage.round(works);
    EXPECT_EQ(stage.dispatcher.rejected(), 0u);
    EXPECT_EQ(stage.dispatcher.delivered(), 6u);
    stage.expect_empty();
}

TEST(SerialDispatcher, AnEventThatFailedBeforeIsRejectedSooner)
{
    for (const int attempts : {1, 2, 7}) {
        Stage stage({.max_in_flight = 2});
        stage.add(1, "bad", 1, attempts);
        for (std::int64_t next = 10; stage.dispatcher.rejected() == 0 && next < 50; ++next) {
            stage.add_apart({next});
            stage.round([](std::int64_t id) { return id == 1 ? fails() : works(); });
        }
        EXPECT_EQ(stage.dispatcher.rejected(), 1u);
        EXPECT_EQ(stage.receiver.times_sent(1), attempts > 1 ? 2u : 3u) << attempts;
    }
}

TEST(SerialDispatcher, AnEventThatFailedBeforeIsNotRejectedWhileNoOtherSucceeds)
{
    Stage stage;
    stage.add(1, "bad", 1, 2);
    stage.add_apart({2, 3});
    for (int i = 0; i < 20; ++i)
        stage.round(fails);
    EXPECT_EQ(stage.dispatcher.rejected(), 0u);
}

TEST(SerialDispatcher, OtherEventsAreSentBetweenTwoProbesOfOneEvent)
{
    Stage stage({.max_in_flight = 1, .max_events_per_request = 2});
    stage.add_together({1, 2});
    stage.add_apart({3, 4, 5});
    stage.fail({1});
    std::set<std::int64_t> tried;
    for (int i = 0; i < 4; ++i) {
        stage.advance_clock(stage.pause());
        tried.insert(stage.in_flight().at(0).at(0));
        stage.fail({stage.in_flight().at(0).at(0)});
    }
    EXPECT_TRUE(tried.contains(1));
    EXPECT_GT(tried.size(), 1u);
}

// After the first failure, adds one event whenever the dispatcher can take more, as the relay does.
void expect_poison_events_to_be_rejected(Stage& stage, std::size_t bad)
{
    std::int64_t next = 1000;
    stage.round(fails);
    for (int i = 0; i < 100 && stage.dispatcher.rejected() < bad; ++i) {
        stage.now = std::max(stage.now, stage.dispatcher.resume_at());
        if (stage.dispatcher.can_take_more(stage.now))
            stage.add_apart({next++});
        stage.round([](std::int64_t id) { return id < 1000 ? fails() : works(); });
    }
    EXPECT_EQ(stage.dispatcher.rejected(), bad);
}

TEST(SerialDispatcher, OneBadEventDoesNotKeepTheOthersAway)
{
    Stage stage;
    stage.add_apart({1});
    expect_poison_events_to_be_rejected(stage, 1);
}

TEST(SerialDispatcher, TwoPoisonEventsDoNotBlockTheOthers)
{
    Stage stage;
    stage.add_apart({1, 2});
    expect_poison_events_to_be_rejected(stage, 2);
}

// Stage::round() answers a request by its first event, so event 1 fails all of its request.
TEST(SerialDispatcher, APoisonEventDoesNotBlockTheEventsOfItsRequest)
{
    Stage stage({.max_events_per_request = 3});
    stage.add_apart({1, 2001, 2002});
    expect_poison_events_to_be_rejected(stage, 1);
}

TEST(SerialDispatcher, AFailureThatNoEventCanCauseRejectsNoEvent)
{
    for (const int attempts : {1, 2}) {
        Stage stage({.max_in_flight = 2, .max_events_per_request = 2, .may_be_event_fault = false});
        stage.add(1, "a", 1, attempts);
        stage.add(2, "a", 1, attempts);
        stage.add(3, "c", 1, attempts);
        for (std::int64_t next = 10; next < 30; ++next) {
            stage.add_apart({next});
            stage.round([](std::int64_t id) { return id < 10 ? fails() : works(); });
        }
        EXPECT_EQ(stage.dispatcher.rejected(), 0u);
        EXPECT_GT(stage.dispatcher.delivered(), 5u);
        EXPECT_GT(stage.receiver.times_sent(1), 5u);
        for (int i = 0; i < 20; ++i)
            stage.round(works);
        EXPECT_EQ(stage.dispatcher.rejected(), 0u);
        stage.expect_empty();
    }
}

} // namespace
