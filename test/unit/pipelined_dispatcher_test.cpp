#include "pipelined_stage.hpp"
#include "sink/dispatch/serial_dispatcher.hpp"

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;

using Stage = PipelinedStage;

// ---- order

TEST(PipelinedDispatcher, TheFirstEventOfAQueueIsDeliveredBeforeTheOthersAreSent)
{
    Stage stage({.streams = {{1, 7}, {2, 7}, {3, 7}}});
    stage.add_together({1, 2, 3});
    EXPECT_EQ(stage.receiver.sent, (Requests{{1}}));
    stage.answer(1, DeliveryStatus::delivered);
    stage.poll();
    EXPECT_EQ(stage.receiver.sent, (Requests{{1}, {2}, {3}}));
}

TEST(PipelinedDispatcher, AfterAChangeOfStreamOneEventIsDeliveredBeforeTheOthersAreSent)
{
    Stage stage({.streams = {{1, 7}, {2, 7}, {3, 8}, {4, 8}}});
    stage.add_together({1, 2, 3, 4});
    stage.answer(1, DeliveryStatus::delivered);
    stage.poll();
    EXPECT_EQ(stage.receiver.sent, (Requests{{1}, {2}}));
    stage.answer(2, DeliveryStatus::delivered);
    stage.poll();
    EXPECT_EQ(stage.receiver.sent, (Requests{{1}, {2}, {3}}));
    stage.answer(3, DeliveryStatus::delivered);
    stage.poll();
    EXPECT_EQ(stage.receiver.sent, (Requests{{1}, {2}, {3}, {4}}));
}

TEST(PipelinedDispatcher, AnEventOfTheOldStreamWaitsForThoseOfTheNewStreamBeforeIt)
{
    Stage stage({.streams = {{1, 7}, {2, 8}, {3, 7}}});
    stage.add_together({1, 2, 3});
    stage.answer(1, DeliveryStatus::delivered);
    stage.poll();
    EXPECT_EQ(stage.receiver.sent, (Requests{{1}, {2}}));
    stage.answer(2, DeliveryStatus::delivered);
    stage.poll();
    EXPECT_EQ(stage.receiver.sent, (Requests{{1}, {2}, {3}}));
}

TEST(PipelinedDispatcher, AnEventThatFailsWhileOthersSucceedIsRejectedEventually)
{
    Stage stage;
    stage.add(1, "a");
    stage.poll();
    for (std::int64_t other = 10; other < 14 && stage.dispatcher.settled().size() < 20; ++other) {
        stage.answer(1, DeliveryStatus::unavailable);
        stage.poll();
        stage.add(other, "b");
        stage.advance_clock(std::chrono::hours(1));
        stage.poll();
        stage.answer(other, DeliveryStatus::delivered);
        stage.poll();
        const auto& settled = stage.dispatcher.settled();
        if (std::ranges::any_of(settled, [](const SettledEvent& s) { return !s.delivered; }))
            break;
    }
    const auto& settled = stage.dispatcher.settled();
    const auto rejected = std::ranges::find(settled, false, &SettledEvent::delivered);
    ASSERT_NE(rejected, settled.end());
    EXPECT_EQ(rejected->ref.id, 1);
}

TEST(PipelinedDispatcher, ASinkThatDoesNotPreserveOrderIsRefused)
{
    for (const bool preserves_order : {true, false}) {
        Receiver receiver{.preserves_order = preserves_order};
        const auto dispatcher = make_dispatcher(std::make_unique<ScriptedSink>(receiver), true,
                                                Stage::policy, [] { return 0.0; });
        EXPECT_EQ(dynamic_cast<PipelinedDispatcher*>(dispatcher.get()) != nullptr, preserves_order);
        EXPECT_EQ(dynamic_cast<SerialDispatcher*>(dispatcher.get()) != nullptr, !preserves_order);
    }
}

TEST(PipelinedDispatcher, ManyEventsOfAnAggregateAreInFlightUpToTheLimit)
{
    Stage stage;
    stage.add_together({1, 2, 3, 4, 5, 6});
    EXPECT_EQ(stage.in_flight(), (Requests{{1}, {2}, {3}, {4}}));
    EXPECT_EQ(stage.dispatcher.in_flight(), 4u);
    stage.deliver({1});
    EXPECT_EQ(stage.in_flight(), (Requests{{2}, {3}, {4}, {5}}));
    stage.deliver({2, 3, 4, 5});
    stage.deliver({6});
    EXPECT_EQ(stage.settled(), "1+ 2+ 3+ 4+ 5+ 6+");
    EXPECT_EQ(stage.dispatcher.delivered(), 6u);
    stage.expect_empty();
}

TEST(PipelinedDispatcher, EventsOfAnAggregateAreSettledInOrderForResultsInAnyOrder)
{
    Stage stage({.max_in_flight = 10});
    stage.add_together({1, 2, 3, 4});
    stage.add(9, "b");
    stage.poll();
    stage.deliver({3});
    stage.deliver({2});
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.dispatcher.claimed(), 5u);
    EXPECT_EQ(stage.dispatcher.in_flight(), 3u);
    stage.deliver({9});
    EXPECT_EQ(stage.settled(), "9+");
    stage.deliver({1});
    EXPECT_EQ(stage.settled(), "9+ 1+ 2+ 3+");
    stage.deliver({4});
    EXPECT_EQ(stage.settled(), "9+ 1+ 2+ 3+ 4+");
    stage.expect_empty();
}

TEST(PipelinedDispatcher, AHotAggregateDoesNotBlockTheOthers)
{
    Stage stage;
    stage.add_together({1, 2, 3, 4, 5, 6, 7, 8, 9});
    stage.add(10, "b");
    stage.add(11, "b");
    stage.deliver({1});
    EXPECT_EQ(stage.in_flight(), (Requests{{2}, {3}, {4}, {5}}));
    stage.deliver({2, 3, 4});
    EXPECT_EQ(stage.in_flight(), (Requests{{5}, {10}, {11}, {6}}));
}

TEST(PipelinedDispatcher, WithoutOrderEventsOfAnAggregateAreIndependent)
{
    Stage stage({.ordered = false});
    stage.add_together({1, 2, 3, 4, 5});
    stage.answer(2, DeliveryStatus::rejected);
    stage.deliver({4, 3});
    EXPECT_EQ(stage.settled(), "2- 4+ 3+");
    EXPECT_EQ(stage.events_behind(0), Ids{});
    EXPECT_EQ(stage.in_flight(), (Requests{{1}, {5}}));
    stage.mark_not_sent({1});
    EXPECT_EQ(stage.in_flight(), (Requests{{5}, {1}}));
    stage.deliver({5, 1});
    EXPECT_EQ(stage.settled(), "2- 4+ 3+ 5+ 1+");
    stage.resume_behind(0);
    stage.expect_empty();
}

// ---- results

TEST(PipelinedDispatcher, AFailedEventAndThoseBehindItAreSentAgainWhenNoneIsInFlight)
{
    for (const DeliveryStatus status : {DeliveryStatus::not_sent, DeliveryStatus::unavailable}) {
        Stage stage;
        stage.add_together({1, 2, 3, 4});
        stage.answer(1, DeliveryStatus::delivered);
        stage.answer(2, status);
        stage.deliver({3}); // out of order
        stage.add_together({5});
        stage.advance_clock(1h);
        EXPECT_EQ(stage.settled(), "1+");
        EXPECT_EQ(stage.in_flight(), (Requests{{4}}));
        stage.mark_not_sent({4});
        EXPECT_EQ(stage.in_flight(), (Requests{{2}, {3}, {4}, {5}}));
        stage.deliver({2, 3, 4, 5});
        EXPECT_EQ(stage.settled(), "1+ 2+ 3+ 4+ 5+");
        EXPECT_EQ(stage.receiver.sent, (Requests{{1}, {2}, {3}, {4}, {2}, {3}, {4}, {5}}));
        stage.expect_empty();
    }
}

TEST(PipelinedDispatcher, AfterResultsOutOfOrderEventsAreSentAgainInOrder)
{
    Stage stage;
    stage.add_together({1, 2, 3, 4});
    stage.answer(4, DeliveryStatus::delivered);
    stage.answer(3, DeliveryStatus::not_sent);
    stage.answer(1, DeliveryStatus::not_sent);
    stage.deliver({2});
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.in_flight(), (Requests{{1}, {2}, {3}, {4}}));
    stage.deliver({1, 2, 3, 4});
    EXPECT_EQ(stage.settled(), "1+ 2+ 3+ 4+");
    EXPECT_EQ(stage.dispatcher.delivered(), 4u);
    stage.expect_empty();
}

TEST(PipelinedDispatcher, AFailureInOneAggregateDoesNotStopTheOthers)
{
    Stage stage({.max_in_flight = 3});
    stage.add_together({1, 2});
    stage.add(3, "b");
    stage.add(4, "b");
    stage.poll();
    stage.mark_not_sent({1});
    EXPECT_EQ(stage.in_flight(), (Requests{{2}, {3}, {4}}));
    stage.deliver({3});
    EXPECT_EQ(stage.settled(), "3+");
    stage.mark_not_sent({2});
    EXPECT_EQ(stage.in_flight(), (Requests{{4}, {1}, {2}}));
}

TEST(PipelinedDispatcher, NotSentIsNoFailureOfTheSink)
{
    Stage stage;
    stage.add_together({1, 2});
    for (int i = 0; i < 100; ++i)
        stage.mark_not_sent({1, 2});
    EXPECT_EQ(stage.dispatcher.consecutive_failures(), 0);
    EXPECT_FALSE(stage.dispatcher.is_backing_off(stage.now));
    EXPECT_EQ(stage.dispatcher.rejected(), 0u);
    EXPECT_EQ(stage.in_flight(), (Requests{{1}, {2}}));
}

TEST(PipelinedDispatcher, AnEventThatIsNotSentAtOnceWaitsForTheOthers)
{
    Stage stage;
    stage.receiver.immediate = {{2, DeliveryStatus::not_sent}};
    stage.add_together({1, 2, 3});
    EXPECT_EQ(stage.in_flight(), (Requests{{1}}));
    stage.receiver.immediate.clear();
    stage.deliver({1});
    EXPECT_EQ(stage.in_flight(), (Requests{{2}, {3}}));
    stage.deliver({2, 3});
    EXPECT_EQ(stage.settled(), "1+ 2+ 3+");
    stage.expect_empty();
}

TEST(PipelinedDispatcher, AnEventThatIsDeliveredAtOnceIsSettledInOrder)
{
    Stage stage;
    stage.receiver.immediate = {{2, DeliveryStatus::delivered}, {4, DeliveryStatus::delivered}};
    stage.add_together({1, 2, 3});
    stage.add(4, "b");
    stage.poll();
    EXPECT_EQ(stage.settled(), "4+");
    stage.deliver({1});
    EXPECT_EQ(stage.settled(), "4+ 1+ 2+");
    stage.deliver({3});
    stage.expect_empty();
}

// ---- rejected events

TEST(PipelinedDispatcher, ARejectedEventIsSettledWhenNoEventOfItsQueueIsInFlight)
{
    Stage stage;
    stage.add_together({1, 2, 3});
    stage.reject(1);
    EXPECT_EQ(stage.settled(), "");
    stage.mark_not_sent({2});
    EXPECT_EQ(stage.settled(), "");
    stage.mark_not_sent({3});
    EXPECT_EQ(stage.settled(), "1-");
    EXPECT_EQ(stage.in_flight(), Requests{});
    EXPECT_EQ(stage.dispatcher.rejected(), 1u);
    EXPECT_EQ(stage.dispatcher.consecutive_failures(), 0);
}

TEST(PipelinedDispatcher, ARejectedEventBlocksItsQueue)
{
    Stage stage;
    for (const std::int64_t id : {1, 2, 3, 4})
        stage.add(id, "a", id < 3 ? 10 : 11);
    stage.poll();
    stage.reject(1);
    stage.mark_not_sent({2, 3, 4});
    stage.add(5, "a", 11);
    stage.add(9, "b");
    stage.advance_clock(1h);
    EXPECT_EQ(stage.in_flight(), (Requests{{9}}));
    EXPECT_EQ(stage.events_behind(), (Ids{2, 3, 4, 5}));
    const SettledEvent rejected = stage.dispatcher.settled().at(0);
    for (const EventRef& ref : stage.dispatcher.events_behind(rejected))
        EXPECT_EQ(ref.token, ref.id < 3 ? 10 : 11);

    stage.dispatcher.forget_settled(1);
    stage.advance_clock(1h);
    EXPECT_EQ(stage.in_flight(), (Requests{{9}}));
    stage.dispatcher.resume_behind(rejected, Ids{2, 4});
    stage.poll();
    EXPECT_EQ(stage.in_flight(), (Requests{{9}, {3}, {5}}));
    stage.deliver({9, 3, 5});
    EXPECT_EQ(stage.settled(), "9+ 3+ 5+");
    stage.expect_empty();
}

TEST(PipelinedDispatcher, ARejectionIsSettledAfterTheEventsBeforeIt)
{
    Stage stage;
    stage.add_together({1, 2, 3});
    stage.answer(2, DeliveryStatus::rejected);
    stage.mark_not_sent({3});
    EXPECT_EQ(stage.settled(), "");
    stage.deliver({1});
    EXPECT_EQ(stage.settled(), "1+ 2-");
    EXPECT_EQ(stage.events_behind(1), (Ids{3}));
    stage.resume_behind(1);
    EXPECT_EQ(stage.in_flight(), (Requests{{3}}));
}

TEST(PipelinedDispatcher, AnEventThatIsRejectedAtOnceBlocksItsQueue)
{
    Stage stage;
    stage.receiver.immediate = {{2, DeliveryStatus::rejected}};
    stage.add_together({1, 2, 3});
    stage.add(4, "b");
    stage.poll();
    EXPECT_EQ(stage.in_flight(), (Requests{{1}, {4}}));
    EXPECT_EQ(stage.dispatcher.in_flight(), 2u);
    stage.deliver({1});
    EXPECT_EQ(stage.settled(), "1+ 2-");
    stage.resume_behind(1);
    EXPECT_EQ(stage.in_flight(), (Requests{{4}, {3}}));
    stage.deliver({4, 3});
    EXPECT_EQ(stage.settled(), "1+ 2- 4+ 3+");
    stage.expect_empty();
}

TEST(PipelinedDispatcher, EventsThatAreRejectedAtOnceAreSettledOneAfterTheOther)
{
    Stage stage;
    stage.receiver.immediate = {{1, DeliveryStatus::rejected},
                                {2, DeliveryStatus::rejected},
                                {3, DeliveryStatus::rejected}};
    stage.add_together({1, 2, 3, 4});
    EXPECT_EQ(stage.settled(), "1-");
    EXPECT_EQ(stage.events_behind(0), (Ids{2, 3, 4}));
    stage.resume_behind(0);
    EXPECT_EQ(stage.settled(), "1- 2-");
    EXPECT_EQ(stage.events_behind(1), (Ids{3, 4}));
    stage.resume_behind(1, {3});
    EXPECT_EQ(stage.settled(), "1- 2-");
    EXPECT_EQ(stage.in_flight(), (Requests{{4}}));
    EXPECT_EQ(stage.receiver.times_sent(3), 0u);
    stage.deliver({4});
    stage.expect_empty();
}

TEST(PipelinedDispatcher, AnEventDeliveredBehindARejectedOneIsSentAgainUnlessBlocked)
{
    for (const bool is_blocked : {true, false}) {
        Stage stage;
        stage.add_together({1, 2});
        stage.answer(1, DeliveryStatus::rejected);
        stage.deliver({2});
        EXPECT_EQ(stage.settled(), "1-");
        stage.resume_behind(0, is_blocked ? Ids{2} : Ids{});
        EXPECT_EQ(stage.in_flight(), is_blocked ? Requests{} : (Requests{{2}}));
        if (!is_blocked)
            stage.deliver({2});
        EXPECT_EQ(stage.settled(), is_blocked ? "1-" : "1- 2+");
        stage.expect_empty();
    }
}

TEST(PipelinedDispatcher, ARejectedEventBehindARejectedOneIsNotSentAgain)
{
    Stage stage;
    stage.add_together({1, 2, 3});
    stage.answer(1, DeliveryStatus::rejected);
    stage.answer(2, DeliveryStatus::rejected);
    stage.mark_not_sent({3});
    EXPECT_EQ(stage.settled(), "1-");
    stage.resume_behind(0);
    ASSERT_EQ(stage.settled(), "1- 2-");
    EXPECT_EQ(stage.dispatcher.settled()[1].reason, "said of 2");
    EXPECT_EQ(stage.receiver.times_sent(2), 1u);
    stage.resume_behind(1);
    EXPECT_EQ(stage.in_flight(), (Requests{{3}}));
}

TEST(PipelinedDispatcher, ARejectionBehindAnEventThatWasNotSentIsDropped)
{
    for (const std::size_t max_in_flight : {4u, 1u}) {
        Stage stage;
        stage.add_together({1, 2});
        stage.receiver.max_in_flight = max_in_flight;
        stage.answer(2, DeliveryStatus::rejected);
        stage.mark_not_sent({1});
        EXPECT_EQ(stage.settled(), "");
        EXPECT_EQ(stage.in_flight(), max_in_flight > 1 ? (Requests{{1}, {2}}) : (Requests{{1}}));
        stage.deliver({1});
        stage.deliver({2});
        ASSERT_EQ(stage.settled(), "1+ 2+");
        EXPECT_EQ(stage.dispatcher.settled()[1].reason, "");
    }
}

TEST(PipelinedDispatcher, AnEventThatIsSentAgainGetsANewResult)
{
    for (const DeliveryStatus status : {DeliveryStatus::delivered, DeliveryStatus::not_sent}) {
        Stage stage;
        stage.add_together({1, 2, 3});
        stage.answer(1, DeliveryStatus::rejected);
        stage.answer(3, DeliveryStatus::rejected);
        stage.mark_not_sent({2});
        stage.resume_behind(0);
        ASSERT_EQ(stage.in_flight(), (Requests{{2}, {3}}));
        stage.answer(2, DeliveryStatus::delivered);
        stage.answer(3, status);
        stage.poll();
        if (status == DeliveryStatus::not_sent) {
            ASSERT_EQ(stage.in_flight(), (Requests{{3}}));
            stage.deliver({3});
        }
        ASSERT_EQ(stage.settled(), "1- 2+ 3+");
        EXPECT_EQ(stage.dispatcher.settled()[2].reason, "");
        stage.expect_empty();
    }
}

TEST(PipelinedDispatcher, ARejectedEventBlocksEventsThatArriveLater)
{
    Stage stage;
    stage.add_together({1});
    stage.reject(1);
    stage.add_together({2});
    EXPECT_EQ(stage.in_flight(), Requests{});
    stage.resume_behind();
    EXPECT_EQ(stage.in_flight(), (Requests{{2}}));
}

TEST(PipelinedDispatcher, AQueueIsFreeWhenAllEventsBehindARejectedOneAreBlocked)
{
    Stage stage;
    stage.add_together({1, 2, 3});
    stage.answer(1, DeliveryStatus::rejected);
    stage.mark_not_sent({2, 3});
    stage.resume_behind(0, {2, 3});
    stage.expect_empty();
    stage.resume_behind(0, {2, 3}); // the queue is empty
    stage.add_together({4});
    EXPECT_EQ(stage.in_flight(), (Requests{{4}}));
}

// ---- lost leases

TEST(PipelinedDispatcher, WaitingEventsOfALostBatchAreDropped)
{
    Stage stage({.max_in_flight = 1});
    stage.add_together({1}, 10);
    stage.add(2, "a", 11);
    stage.add(3, "a", 12);
    stage.add(4, "b", 11);
    stage.dispatcher.drop_batch(11);
    EXPECT_EQ(stage.dispatcher.claimed(), 2u);
    stage.deliver({1});
    stage.deliver({3});
    EXPECT_EQ(stage.settled(), "1+ 3+");
    EXPECT_EQ(stage.receiver.sent, (Requests{{1}, {3}}));
    stage.expect_empty();
}

TEST(PipelinedDispatcher, ResultsOfALostBatchAreIgnored)
{
    for (const DeliveryStatus status : {DeliveryStatus::delivered, DeliveryStatus::rejected,
                                        DeliveryStatus::unavailable, DeliveryStatus::not_sent}) {
        Stage stage;
        stage.add(1, "a", 10);
        stage.add(2, "a", 11);
        stage.add(3, "a", 11);
        stage.poll();
        stage.dispatcher.drop_batch(10);
        EXPECT_EQ(stage.in_flight(), (Requests{{1}, {2}, {3}}));
        stage.answer(1, status);
        if (status == DeliveryStatus::delivered)
            stage.deliver({2, 3});
        else
            stage.mark_not_sent({2, 3});
        stage.round(works);
        EXPECT_EQ(stage.settled(), "2+ 3+");
        EXPECT_EQ(stage.receiver.times_sent(1), 1u);
        stage.expect_empty();
    }
}

TEST(PipelinedDispatcher, DeliveredEventsOfALostBatchAreNotSettled)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.add(3, "a", 10);
    stage.poll();
    stage.deliver({2, 3});
    stage.dispatcher.drop_batch(11);
    EXPECT_EQ(stage.dispatcher.claimed(), 3u);
    stage.deliver({1});
    EXPECT_EQ(stage.settled(), "1+ 3+");
    stage.expect_empty();
}

TEST(PipelinedDispatcher, EventsOfALostBatchThatWereNotSentAreNotSentAgain)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.add(3, "a", 10);
    stage.add(4, "a", 11);
    stage.poll();
    stage.answer(3, DeliveryStatus::delivered);
    stage.mark_not_sent({1, 4});
    stage.dispatcher.drop_batch(10);
    stage.advance_clock(1h);
    EXPECT_EQ(stage.in_flight(), (Requests{{2}}));
    stage.mark_not_sent({2});
    EXPECT_EQ(stage.in_flight(), (Requests{{2}, {4}}));
    stage.deliver({2, 4});
    EXPECT_EQ(stage.settled(), "2+ 4+");
    stage.expect_empty();
}

TEST(PipelinedDispatcher, ARejectionOfALostBatchBlocksNoEvent)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.poll();
    stage.reject(1);
    stage.dispatcher.drop_batch(10);
    stage.mark_not_sent({2});
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.in_flight(), (Requests{{2}}));
    stage.deliver({2});
    stage.expect_empty();
}

TEST(PipelinedDispatcher, SettledEventsOfALostBatchAreDroppedAndBlockNoEvent)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.add_apart({3}, 10);
    stage.add_apart({4}, 11);
    stage.answer(1, DeliveryStatus::rejected);
    stage.mark_not_sent({2});
    stage.deliver({3, 4});
    EXPECT_EQ(stage.settled(), "1- 3+ 4+");
    stage.dispatcher.drop_batch(10);
    EXPECT_EQ(stage.settled(), "4+");
    stage.poll();
    EXPECT_EQ(stage.in_flight(), (Requests{{2}}));
}

TEST(PipelinedDispatcher, ARejectionInAnotherBatchStillBlocksItsQueue)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.add(3, "a", 12);
    stage.poll();
    stage.answer(1, DeliveryStatus::rejected);
    stage.mark_not_sent({2, 3});
    stage.dispatcher.drop_batch(11);
    stage.advance_clock(1s);
    EXPECT_EQ(stage.in_flight(), Requests{});
    stage.resume_behind();
    EXPECT_EQ(stage.in_flight(), (Requests{{3}}));
}

TEST(PipelinedDispatcher, TheSameEventInANewBatchIsSettledOnce)
{
    for (const bool ordered : {true, false}) {
        Stage stage({.ordered = ordered});
        stage.add(1, "a", 10);
        stage.poll();
        stage.dispatcher.drop_batch(10);
        stage.add(1, "a", 11);
        stage.poll();
        EXPECT_EQ(stage.in_flight(), (Requests{{1}, {1}}));
        stage.deliver({1});
        EXPECT_EQ(stage.settled(), "");
        stage.deliver({1});
        ASSERT_EQ(stage.settled(), "1+");
        EXPECT_EQ(stage.dispatcher.settled()[0].ref.token, 11);
        stage.expect_empty();
    }
}

// ---- size of a claim

TEST(PipelinedDispatcher, AClaimIsAQuarterOfTheLimitOfTheSink)
{
    Stage stage({.max_in_flight = 10'000});
    EXPECT_EQ(stage.dispatcher.claim_size(), 2'500u);
}

TEST(PipelinedDispatcher, AClaimIsNotSmallerThanItsMinimum)
{
    EXPECT_EQ(Stage({.max_in_flight = 2'000}).dispatcher.claim_size(), 1'000u);
    EXPECT_EQ(Stage({.max_in_flight = 10}).dispatcher.claim_size(), 10u);
    EXPECT_EQ(Stage({.max_in_flight = 1}).dispatcher.claim_size(), 1u);
}

TEST(PipelinedDispatcher, EventsSentEarlyAreFlushedByTheNextPoll)
{
    Stage stage({.max_in_flight = 10});
    stage.add(1, "a");
    stage.dispatcher.send_unless_batching(stage.now);
    EXPECT_EQ(stage.in_flight(), (Requests{{1}}));
    stage.poll();
    EXPECT_EQ(stage.receiver.flushed, 1u);
}

// ---- memory

TEST(PipelinedDispatcher, ThePoolKeepsEventsWhileAnyAreClaimed)
{
    const auto kept = [](Stage& stage) {
        return stage.dispatcher.event_pool().acquire()->payload.capacity() > 40;
    };
    Stage stage;
    stage.add_apart({45, 46, 47});
    stage.deliver({45, 46});
    EXPECT_TRUE(kept(stage));
    stage.deliver({47});
    EXPECT_FALSE(kept(stage));
    stage.add_apart({48, 49});
    stage.deliver({48});
    stage.dispatcher.cancel_all();
    EXPECT_FALSE(kept(stage));
}

} // namespace
