#include "dispatcher_stage.hpp"
#include "sink/dispatch/serial_dispatcher.hpp"

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;

using Stage = test::Stage<SerialDispatcher>;

// ---- order

TEST(SerialDispatcher, WithOrderTheNextEventOfAnAggregateIsSentWhenTheFirstIsDelivered)
{
    Stage stage;
    stage.add_together({1, 2, 3});
    EXPECT_EQ(stage.in_flight(), (Requests{{1}}));
    stage.advance_clock(1h);
    EXPECT_EQ(stage.in_flight(), (Requests{{1}}));
    stage.deliver({1});
    EXPECT_EQ(stage.in_flight(), (Requests{{2}}));
    stage.fail({2});
    stage.advance_clock(1s);
    EXPECT_EQ(stage.in_flight(), (Requests{{2}}));
    stage.deliver({2});
    stage.deliver({3});
    EXPECT_EQ(stage.settled(), "1+ 2+ 3+");
    stage.expect_empty();
}

TEST(SerialDispatcher, AggregatesDoNotWaitForEachOther)
{
    Stage stage({.max_in_flight = 10});
    for (const std::int64_t id : {1, 2, 3, 4, 5, 6})
        stage.add(id, id % 2 ? "odd" : "even");
    Event other;
    other.id = 7;
    other.aggregate_type = "customer";
    other.aggregate_id = "odd"; // the same aggregate_id, but another aggregate_type
    stage.dispatcher.add(std::make_unique<Event>(other));
    stage.poll();
    EXPECT_EQ(stage.in_flight(), (Requests{{1}, {2}, {7}}));
    stage.deliver({2});
    EXPECT_EQ(stage.in_flight(), (Requests{{1}, {7}, {4}}));
}

TEST(SerialDispatcher, WithoutOrderEventsAreSentUpToTheLimit)
{
    Stage stage({.max_in_flight = 3, .ordered = false});
    stage.add_together({1, 2, 3, 4, 5});
    EXPECT_EQ(stage.in_flight(), (Requests{{1}, {2}, {3}}));
    EXPECT_EQ(stage.dispatcher.in_flight(), 3u);
    stage.deliver({2});
    EXPECT_EQ(stage.in_flight(), (Requests{{1}, {3}, {4}}));
    stage.deliver({4, 3, 1});
    EXPECT_EQ(stage.settled(), "2+ 4+ 3+ 1+");
    EXPECT_EQ(stage.in_flight(), (Requests{{5}}));
}

// ---- rejected events

TEST(SerialDispatcher, ARejectedEventBlocksItsQueue)
{
    Stage stage;
    for (const std::int64_t id : {1, 2, 3, 4})
        stage.add(id, "a", id < 3 ? 10 : 11);
    stage.add_apart({9});
    stage.reject(1);
    stage.add(5, "a", 11);
    stage.advance_clock(1h);
    EXPECT_EQ(stage.in_flight(), (Requests{{9}}));
    const SettledEvent rejected = stage.dispatcher.settled().at(0);
    Ids behind;
    for (const EventRef& ref : stage.dispatcher.events_behind(rejected)) {
        behind.push_back(ref.id);
        EXPECT_EQ(ref.token, ref.id < 3 ? 10 : 11);
    }
    EXPECT_EQ(behind, (Ids{2, 3, 4, 5}));

    stage.dispatcher.forget_settled(1);
    stage.advance_clock(1h);
    EXPECT_EQ(stage.in_flight(), (Requests{{9}}));
    stage.dispatcher.resume_behind(rejected, Ids{2, 4});
    stage.poll();
    EXPECT_EQ(stage.in_flight(), (Requests{{9}, {3}}));
    stage.deliver({9, 3});
    stage.deliver({5});
    EXPECT_EQ(stage.settled(), "9+ 3+ 5+");
    stage.expect_empty();
}

TEST(SerialDispatcher, AQueueIsFreeWhenAllEventsBehindARejectedOneAreBlocked)
{
    Stage stage;
    stage.add_together({1, 2});
    stage.reject(1);
    stage.dispatcher.resume_behind(stage.dispatcher.settled().at(0), Ids{2});
    stage.expect_empty();
    stage.add(3, "a");
    stage.poll();
    EXPECT_EQ(stage.in_flight(), (Requests{{3}}));
}

TEST(SerialDispatcher, ARejectedEventBlocksEventsThatArriveLater)
{
    Stage stage;
    stage.add_apart({1});
    stage.reject(1);
    stage.add(2, "of 1");
    stage.poll();
    EXPECT_EQ(stage.in_flight(), Requests{});
    stage.resume_behind();
    EXPECT_EQ(stage.in_flight(), (Requests{{2}}));
}

TEST(SerialDispatcher, WithoutOrderARejectedEventBlocksNoEvent)
{
    Stage stage({.max_in_flight = 1, .ordered = false});
    stage.add_together({1, 2});
    stage.reject(1);
    EXPECT_TRUE(stage.dispatcher.events_behind(stage.dispatcher.settled().at(0)).empty());
    EXPECT_EQ(stage.in_flight(), (Requests{{2}}));
}

// ---- ending

TEST(SerialDispatcher, AfterEndpointGoneNoEventIsSent)
{
    Stage stage;
    stage.add_apart({1, 2, 3, 4, 5});
    EXPECT_FALSE(stage.dispatcher.endpoint_gone());
    stage.answer(1, DeliveryStatus::endpoint_gone);
    stage.deliver({2});
    EXPECT_EQ(stage.dispatcher.endpoint_gone(), "said of 1");
    EXPECT_EQ(stage.dispatcher.last_error(), "said of 1");
    stage.advance_clock(1h);
    EXPECT_EQ(stage.in_flight(), (Requests{{3}, {4}}));
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now));
    stage.deliver({3, 4});
    EXPECT_EQ(stage.settled(), "2+ 3+ 4+");
    EXPECT_EQ(stage.dispatcher.claimed(), 2u); // 1 and 5 are not settled
}

TEST(SerialDispatcher, AfterStopSendingResultsAreStillRead)
{
    Stage stage;
    stage.add_apart({1, 2, 3, 4, 5});
    stage.dispatcher.stop_sending();
    stage.deliver({1});
    stage.fail({2});
    stage.advance_clock(1h);
    EXPECT_EQ(stage.in_flight(), (Requests{{3}, {4}}));
    stage.deliver({3, 4});
    EXPECT_EQ(stage.settled(), "1+ 3+ 4+");
    EXPECT_EQ(stage.dispatcher.in_flight(), 0u);
    EXPECT_EQ(stage.dispatcher.claimed(), 2u);
}

TEST(SerialDispatcher, AfterCancelAllNoEventIsClaimed)
{
    Stage stage({.max_events_per_request = 2});
    stage.add_apart({1});
    stage.add_apart({2, 3});
    stage.add_apart({4});
    stage.deliver({4});
    stage.add(5, "of 1");
    stage.fail({2});
    stage.add_apart({6});
    stage.answer(1, DeliveryStatus::rejected); // cancel_all() drops this result
    stage.dispatcher.cancel_all();
    EXPECT_TRUE(stage.dispatcher.is_backing_off(stage.now)); // the pause is unchanged
    EXPECT_EQ(stage.dispatcher.next_poll_at(), std::nullopt);
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.in_flight(), Requests{});
    stage.expect_empty();
    stage.advance_clock(1h);
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.in_flight(), Requests{});
    stage.add_apart({1, 2});
    stage.round(works);
    EXPECT_EQ(stage.settled(), "1+ 2+");
    stage.expect_empty();
}

// ---- claims and polling

TEST(SerialDispatcher, CountsClaimedEventsAndBytes)
{
    Stage stage;
    EXPECT_EQ(stage.dispatcher.claimed_bytes(), 0u);
    Event event;
    event.id = 1;
    event.payload = std::string(1000, 'x');
    const std::size_t size = event.size();
    stage.dispatcher.add(std::make_unique<Event>(event));
    EXPECT_EQ(stage.dispatcher.claimed_bytes(), size);
    stage.add(2, "b");
    EXPECT_GT(stage.dispatcher.claimed_bytes(), size + sizeof(Event) - 1);
    EXPECT_EQ(stage.dispatcher.claimed(), 2u);
    stage.poll();
    EXPECT_EQ(stage.dispatcher.claimed(), 2u);
    stage.reject(2);
    EXPECT_EQ(stage.dispatcher.claimed_bytes(), size);
    stage.deliver({1});
    stage.expect_empty();
}

TEST(SerialDispatcher, ClaimsEnoughToKeepTheSinkBusy)
{
    EXPECT_EQ(Stage({.max_in_flight = 1}).dispatcher.claim_size(), 256u);
    EXPECT_EQ(Stage({.max_in_flight = 100}).dispatcher.claim_size(), 400u);
    EXPECT_EQ(Stage({.max_in_flight = 16, .max_events_per_request = 100}).dispatcher.claim_size(),
              6400u);
    EXPECT_EQ(
        Stage({.max_in_flight = 256, .max_events_per_request = 10'000}).dispatcher.claim_size(),
        10'000u);

    Stage stage;
    for (std::int64_t id = 1; stage.dispatcher.can_take_more(stage.now) && id < 1000; ++id)
        stage.add(id, "of " + std::to_string(id));
    EXPECT_EQ(stage.dispatcher.claimed(), stage.dispatcher.claim_size() / 2);
}

TEST(SerialDispatcher, AHotAggregateDoesNotBlockTheOthers)
{
    Stage stage;
    std::int64_t id = 1;
    for (; id <= 5000; ++id)
        stage.add(id, "hot");
    EXPECT_TRUE(stage.dispatcher.can_take_more(stage.now));
    for (const char* aggregate : {"b", "c", "d"})
        stage.add(id++, aggregate);
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now));

    Stage full;
    for (id = 1; full.dispatcher.can_take_more(full.now) && id < 20'000; ++id)
        full.add(id, "hot");
    EXPECT_EQ(full.dispatcher.claimed(), 10'000u);
}

TEST(SerialDispatcher, AfterAFailureClaimsAreLimitedToProbes)
{
    Stage stage;
    stage.add_apart({1});
    stage.fail({1});
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now));
    stage.now += 1s;
    EXPECT_TRUE(stage.dispatcher.can_take_more(stage.now));
    stage.add_apart({2});
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now));
    stage.deliver({1});
    EXPECT_TRUE(stage.dispatcher.can_take_more(stage.now));
}

TEST(SerialDispatcher, IsPolledWhenThePauseEnds)
{
    Stage stage;
    EXPECT_EQ(stage.dispatcher.next_poll_at(), std::nullopt);
    stage.receiver.next_poll_at = stage.now + 5s;
    EXPECT_EQ(stage.dispatcher.next_poll_at(), stage.now + 5s);
    stage.add_apart({1, 2, 3});
    stage.fail({1});
    EXPECT_EQ(stage.dispatcher.next_poll_at(), stage.now + 5s - 1ms); // two events are in flight
    stage.fail({2});
    EXPECT_EQ(stage.dispatcher.next_poll_at(), stage.dispatcher.resume_at());
    stage.receiver.next_poll_at = std::nullopt;
    EXPECT_EQ(stage.dispatcher.next_poll_at(), stage.dispatcher.resume_at());
    stage.receiver.next_poll_at = stage.now + 1ms;
    EXPECT_EQ(stage.dispatcher.next_poll_at(), stage.now + 1ms);
}

TEST(SerialDispatcher, ThePauseCausesNoPollIfNoEventWaits)
{
    Stage stage;
    stage.add_apart({1, 2});
    stage.answer(1, DeliveryStatus::unavailable, 1s);
    stage.advance_clock(1ms);
    stage.advance_clock(1s);
    stage.deliver({1, 2});
    stage.expect_empty();
    EXPECT_EQ(stage.dispatcher.next_poll_at(), std::nullopt);
}

TEST(SerialDispatcher, ReportsOfTheSinkArePassedOn)
{
    Stage stage;
    EXPECT_EQ(stage.dispatcher.wait_fd(), 42);
    EXPECT_EQ(stage.dispatcher.metadata_keys(), std::vector<std::string>{"region"});
}

} // namespace
