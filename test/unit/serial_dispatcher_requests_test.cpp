#include "dispatcher_stage.hpp"
#include "sink/dispatch/serial_dispatcher.hpp"

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;

using Stage = test::Stage<SerialDispatcher>;

// ---- requests

TEST(SerialDispatcher, ARequestIsFilledFromManyAggregates)
{
    Stage stage({.max_in_flight = 2, .max_events_per_request = 4});
    for (const std::int64_t id : {1, 2, 3})
        stage.add(id, "a");
    stage.add_apart({4, 5, 6});
    EXPECT_EQ(stage.in_flight(), (Requests{{1, 2, 3, 4}, {5, 6}}));
    stage.deliver({1});
    EXPECT_EQ(stage.settled(), "1+ 2+ 3+ 4+");
    EXPECT_EQ(stage.dispatcher.claimed(), 2u);
}

TEST(SerialDispatcher, ARequestWaitsForEventsThatFitIntoIt)
{
    Stage stage({.max_events_per_request = 3});
    for (const std::int64_t id : {1, 2, 3}) {
        stage.add(id, "a");
        stage.dispatcher.send_unless_batching(stage.now);
    }
    stage.poll();
    EXPECT_EQ(stage.in_flight(), (Requests{{1, 2, 3}}));
}

TEST(SerialDispatcher, ARequestHasTheFirstEventsOfAQueueInOrder)
{
    Stage stage({.max_events_per_request = 2});
    stage.add_together({1, 2, 3, 4, 5});
    EXPECT_EQ(stage.in_flight(), (Requests{{1, 2}}));
    stage.deliver({1});
    EXPECT_EQ(stage.in_flight(), (Requests{{3, 4}}));
}

TEST(SerialDispatcher, AFailedRequestIsSentAgainWithTheSameEvents)
{
    Stage stage({.max_in_flight = 2, .max_events_per_request = 3});
    stage.add(1, "a");
    stage.add_apart({2, 3});
    for (int i = 0; i < 5; ++i) {
        stage.fail({2});
        EXPECT_EQ(stage.in_flight(), Requests{});
        stage.add(4 + i, "a");
        stage.advance_clock(stage.pause());
        EXPECT_EQ(stage.in_flight(), (Requests{{1, 2, 3}}));
    }
    stage.deliver({1});
    EXPECT_EQ(stage.settled(), "1+ 2+ 3+");
    EXPECT_EQ(stage.in_flight(), (Requests{{4, 5, 6}}));
}

TEST(SerialDispatcher, AfterAFailureNewRequestsHoldOneEvent)
{
    Stage stage({.max_in_flight = 2, .max_events_per_request = 3});
    stage.add_apart({1});
    stage.add_apart({2, 3, 4, 5, 6, 7});
    stage.fail({1});
    stage.advance_clock(1s);
    EXPECT_EQ(stage.in_flight(), (Requests{{2, 3, 4}, {5}}));
    stage.deliver({2});
    EXPECT_EQ(stage.in_flight(), (Requests{{5}, {6, 7, 1}}));
}

TEST(SerialDispatcher, ARejectedRequestIsSplit)
{
    Stage stage({.max_in_flight = 3, .max_events_per_request = 4});
    stage.add(1, "a");
    stage.add(2, "a");
    stage.add_apart({3});
    stage.add(4, "a");
    stage.add(5, "a");
    ASSERT_EQ(stage.in_flight(), (Requests{{1, 2, 3}}));
    stage.reject(1);
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.dispatcher.consecutive_failures(), 0);
    EXPECT_EQ(stage.in_flight(), (Requests{{1}, {3}}));
    stage.deliver({1});
    EXPECT_EQ(stage.in_flight(), (Requests{{3}, {2}}));
    stage.reject(2);
    EXPECT_EQ(stage.settled(), "1+ 2-");
    stage.deliver({3});
    stage.resume_behind(1);
    EXPECT_EQ(stage.in_flight(), (Requests{{4, 5}})); // 4 and 5 were not in the rejected request
}

TEST(SerialDispatcher, AnEventThatIsSentAloneSharesNoRequest)
{
    Stage stage({.max_in_flight = 1, .max_events_per_request = 2});
    stage.add_apart({1, 2, 3});
    stage.reject(1);
    EXPECT_EQ(stage.in_flight(), (Requests{{3}})); // 1 is first in order, but must be sent alone
    stage.deliver({3});
    EXPECT_EQ(stage.in_flight(), (Requests{{1}}));
    stage.add_apart({4});
    stage.deliver({1});
    EXPECT_EQ(stage.in_flight(), (Requests{{2}}));
    stage.deliver({2});
    EXPECT_EQ(stage.in_flight(), (Requests{{4}}));
}

TEST(SerialDispatcher, ARequestThatFailsRepeatedlyWhileOthersSucceedIsSplit)
{
    Stage stage({.max_in_flight = 2, .max_events_per_request = 2});
    stage.add_apart({1, 2});
    const auto one_is_bad = [](std::int64_t id) { return id == 1 ? fails() : works(); };
    for (std::int64_t next = 10; stage.dispatcher.rejected() == 0 && next < 100; ++next) {
        stage.add_apart({next});
        stage.round(one_is_bad);
    }
    EXPECT_EQ(stage.dispatcher.rejected(), 1u);
    for (int i = 0; i < 3; ++i)
        stage.round(works);
    EXPECT_NE(stage.settled().find("1-"), std::string::npos);
    EXPECT_NE(stage.settled().find("2+"), std::string::npos);
    stage.expect_empty();
}

// ---- lost leases

TEST(SerialDispatcher, WaitingEventsOfALostBatchAreDropped)
{
    Stage stage({.max_in_flight = 1});
    stage.add_apart({1}, 10);
    stage.add(2, "of 1", 11);
    stage.add(3, "of 1", 12);
    stage.add(4, "b", 11);
    stage.dispatcher.drop_batch(11);
    EXPECT_EQ(stage.dispatcher.claimed(), 2u);
    stage.deliver({1});
    EXPECT_EQ(stage.in_flight(), (Requests{{3}}));
    stage.deliver({3});
    EXPECT_EQ(stage.settled(), "1+ 3+");
    EXPECT_EQ(stage.receiver.sent, (Requests{{1}, {3}}));
    stage.expect_empty();
}

TEST(SerialDispatcher, ResultsOfALostBatchAreIgnored)
{
    for (const DeliveryStatus status :
         {DeliveryStatus::delivered, DeliveryStatus::rejected, DeliveryStatus::unavailable}) {
        Stage stage;
        stage.add(1, "a", 10);
        stage.add(2, "a", 11);
        stage.poll();
        stage.dispatcher.drop_batch(10);
        stage.advance_clock(1s);
        EXPECT_EQ(stage.in_flight(), (Requests{{1}})); // the request may still arrive, so 2 waits
        stage.answer(1, status);
        stage.advance_clock(1ms);
        EXPECT_EQ(stage.settled(), "");
        stage.advance_clock(1s);
        EXPECT_EQ(stage.in_flight(), (Requests{{2}}));
        stage.deliver({2});
        EXPECT_EQ(stage.settled(), "2+");
        EXPECT_EQ(stage.receiver.times_sent(1), 1u);
        stage.expect_empty();
    }
}

TEST(SerialDispatcher, AnEventInANewBatchWaitsForItsRequestInTheLostBatch)
{
    for (const bool ordered : {true, false}) {
        Stage stage({.ordered = ordered});
        stage.add(1, "a", 10);
        stage.poll();
        stage.dispatcher.drop_batch(10);
        stage.add(1, "a", 11);
        stage.poll();
        EXPECT_EQ(stage.in_flight(), (Requests{{1}}));
        stage.deliver({1});
        EXPECT_EQ(stage.settled(), "");
        stage.deliver({1});
        ASSERT_EQ(stage.settled(), "1+");
        EXPECT_EQ(stage.dispatcher.settled()[0].ref.token, 11);
        stage.expect_empty();
    }
}

TEST(SerialDispatcher, SettledEventsOfALostBatchAreDroppedAndBlockNoEvent)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.add_apart({3}, 10);
    stage.add_apart({4}, 11);
    stage.reject(1);
    stage.deliver({3, 4});
    EXPECT_EQ(stage.settled(), "1- 3+ 4+");
    stage.dispatcher.drop_batch(10);
    EXPECT_EQ(stage.settled(), "4+");
    stage.poll();
    EXPECT_EQ(stage.in_flight(), (Requests{{2}}));
}

TEST(SerialDispatcher, ARejectionInAnotherBatchStillBlocksItsQueue)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.add(3, "a", 12);
    stage.poll();
    stage.reject(1);
    stage.dispatcher.drop_batch(11);
    stage.advance_clock(1s);
    EXPECT_EQ(stage.in_flight(), Requests{});
    stage.resume_behind();
    EXPECT_EQ(stage.in_flight(), (Requests{{3}}));
}

TEST(SerialDispatcher, EventsThatShareARequestWithALostBatchAreSettledOrSentAgain)
{
    for (const DeliveryStatus status :
         {DeliveryStatus::delivered, DeliveryStatus::rejected, DeliveryStatus::unavailable}) {
        Stage stage({.max_events_per_request = 4});
        stage.add(1, "a", 10);
        stage.add(2, "a", 11);
        stage.add(3, "b", 10);
        stage.add(4, "c", 11);
        stage.poll();
        ASSERT_EQ(stage.in_flight(), (Requests{{1, 2, 3, 4}}));
        stage.dispatcher.drop_batch(10);
        stage.answer(1, status);
        stage.advance_clock(1ms);
        for (int i = 0; i < 3; ++i)
            stage.round(works);
        EXPECT_EQ(stage.settled(), "2+ 4+");
        EXPECT_EQ(stage.receiver.times_sent(1), 1u);
        EXPECT_EQ(stage.receiver.times_sent(3), 1u);
        stage.expect_empty();
    }
}

TEST(SerialDispatcher, ARequeuedRequestIsSentWithoutTheLostBatch)
{
    Stage stage({.max_events_per_request = 4});
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.add(3, "b", 10);
    stage.poll();
    stage.fail({1});
    stage.dispatcher.drop_batch(10);
    EXPECT_EQ(stage.dispatcher.claimed(), 1u);
    for (int i = 0; i < 3; ++i)
        stage.round(works);
    EXPECT_EQ(stage.settled(), "2+");
    stage.expect_empty();
}

} // namespace
