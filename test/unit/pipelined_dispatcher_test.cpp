#include "sink/dispatch/pipelined_dispatcher.hpp"

#include "dispatcher_stage.hpp"
#include "sink/dispatch/serial_dispatcher.hpp"

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;

struct Stage : test::Stage<PipelinedDispatcher> {
    explicit Stage(Receiver setting = {})
        : test::Stage<PipelinedDispatcher>(in_order(std::move(setting)))
    {}

    static Receiver in_order(Receiver setting)
    {
        setting.preserves_order = true;
        return setting;
    }

    // All in one aggregate.
    void add_together(std::initializer_list<std::int64_t> ids, std::int64_t token = 1)
    {
        for (const std::int64_t id : ids)
            add(id, "a", token);
        work();
    }

    void give_back(std::initializer_list<std::int64_t> ids)
    {
        for (const std::int64_t id : ids)
            answer(id, DeliveryStatus::returned);
        work();
    }

    Ids behind(std::size_t settlement = 0) const
    {
        Ids ids;
        for (const Handle& handle : dispatcher.behind(dispatcher.settled().at(settlement)))
            ids.push_back(handle.id);
        return ids;
    }

    void resume_behind(std::size_t settlement = 0, const Ids& blocked = {})
    {
        dispatcher.resume_behind(dispatcher.settled().at(settlement), blocked);
        work();
    }
};

// ---- order

TEST(PipelinedDispatcher, InANewStreamOneIsDeliveredBeforeTheOthersFollow)
{
    Stage stage({.streams = {{1, 7}, {2, 7}, {3, 7}}});
    stage.add_together({1, 2, 3});
    EXPECT_EQ(stage.receiver.sent, (Parcels{{1}}));
    stage.answer(1, DeliveryStatus::delivered);
    stage.work();
    EXPECT_EQ(stage.receiver.sent, (Parcels{{1}, {2}, {3}}));
}

TEST(PipelinedDispatcher, InAnotherStreamItIsTheSameAgain)
{
    Stage stage({.streams = {{1, 7}, {2, 7}, {3, 8}, {4, 8}}});
    stage.add_together({1, 2, 3, 4});
    stage.answer(1, DeliveryStatus::delivered);
    stage.work();
    EXPECT_EQ(stage.receiver.sent, (Parcels{{1}, {2}}));
    stage.answer(2, DeliveryStatus::delivered);
    stage.work();
    EXPECT_EQ(stage.receiver.sent, (Parcels{{1}, {2}, {3}}));
    stage.answer(3, DeliveryStatus::delivered);
    stage.work();
    EXPECT_EQ(stage.receiver.sent, (Parcels{{1}, {2}, {3}, {4}}));
}

TEST(PipelinedDispatcher, BehindOneInAnotherStreamNothingGoesInTheOld)
{
    Stage stage({.streams = {{1, 7}, {2, 8}, {3, 7}}});
    stage.add_together({1, 2, 3});
    stage.answer(1, DeliveryStatus::delivered);
    stage.work();
    EXPECT_EQ(stage.receiver.sent, (Parcels{{1}, {2}}));
    stage.answer(2, DeliveryStatus::delivered);
    stage.work();
    EXPECT_EQ(stage.receiver.sent, (Parcels{{1}, {2}, {3}}));
}

TEST(PipelinedDispatcher, TroubleOfOneAloneIsItsOwnInTheEnd)
{
    Stage stage;
    stage.add(1, "a");
    stage.work();
    for (std::int64_t other = 10; other < 14 && stage.dispatcher.settled().size() < 20; ++other) {
        stage.answer(1, DeliveryStatus::trouble);
        stage.work();
        stage.add(other, "b");
        stage.pass(std::chrono::hours(1));
        stage.work();
        stage.answer(other, DeliveryStatus::delivered);
        stage.work();
        const auto& settled = stage.dispatcher.settled();
        if (std::ranges::any_of(settled, [](const SettledEvent& s) { return !s.delivered; }))
            break;
    }
    const auto& settled = stage.dispatcher.settled();
    const auto rejected = std::ranges::find(settled, false, &SettledEvent::delivered);
    ASSERT_NE(rejected, settled.end());
    EXPECT_EQ(rejected->handle.id, 1);
}

TEST(PipelinedDispatcher, IsForSinksThatKeepTheOrder)
{
    for (const bool preserves_order : {true, false}) {
        Receiver receiver{.preserves_order = preserves_order};
        const auto dispatcher = make_dispatcher(std::make_unique<ScriptedSink>(receiver), true,
                                                Stage::policy, [] { return 0.0; });
        EXPECT_EQ(dynamic_cast<PipelinedDispatcher*>(dispatcher.get()) != nullptr, preserves_order);
        EXPECT_EQ(dynamic_cast<SerialDispatcher*>(dispatcher.get()) != nullptr, !preserves_order);
    }
}

TEST(PipelinedDispatcher, ManyOfAnAggregateAreOnTheWayUpToTheCapacity)
{
    Stage stage;
    stage.add_together({1, 2, 3, 4, 5, 6});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {2}, {3}, {4}}));
    EXPECT_EQ(stage.dispatcher.on_the_way(), 4u);
    stage.deliver({1});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}, {3}, {4}, {5}}));
    stage.deliver({2, 3, 4, 5});
    stage.deliver({6});
    EXPECT_EQ(stage.settled(), "1+ 2+ 3+ 4+ 5+ 6+");
    EXPECT_EQ(stage.dispatcher.delivered(), 6u);
    stage.expect_empty();
}

TEST(PipelinedDispatcher, SettlesAnAggregateInItsOrderWhateverOrderTheReportsHave)
{
    Stage stage({.capacity = 10});
    stage.add_together({1, 2, 3, 4});
    stage.add(9, "b");
    stage.work();
    stage.deliver({3});
    stage.deliver({2});
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.dispatcher.in_hand(), 5u);
    EXPECT_EQ(stage.dispatcher.on_the_way(), 3u);
    stage.deliver({9});
    EXPECT_EQ(stage.settled(), "9+");
    stage.deliver({1});
    EXPECT_EQ(stage.settled(), "9+ 1+ 2+ 3+");
    stage.deliver({4});
    EXPECT_EQ(stage.settled(), "9+ 1+ 2+ 3+ 4+");
    stage.expect_empty();
}

TEST(PipelinedDispatcher, AHotAggregateDoesNotKeepTheOthersAway)
{
    Stage stage;
    stage.add_together({1, 2, 3, 4, 5, 6, 7, 8, 9});
    stage.add(10, "b");
    stage.add(11, "b");
    stage.deliver({1});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}, {3}, {4}, {5}}));
    stage.deliver({2, 3, 4});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{5}, {10}, {11}, {6}}));
}

TEST(PipelinedDispatcher, WithoutOrderEachEventIsByItself)
{
    Stage stage({.ordered = false});
    stage.add_together({1, 2, 3, 4, 5});
    stage.answer(2, DeliveryStatus::rejected);
    stage.deliver({4, 3});
    EXPECT_EQ(stage.settled(), "2- 4+ 3+");
    EXPECT_EQ(stage.behind(0), Ids{});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {5}}));
    stage.give_back({1});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{5}, {1}}));
    stage.deliver({5, 1});
    EXPECT_EQ(stage.settled(), "2- 4+ 3+ 5+ 1+");
    stage.resume_behind(0);
    stage.expect_empty();
}

TEST(PipelinedDispatcher, ASettlementNamesTheBatchAndSaysWhy)
{
    Stage stage;
    stage.add(1, "a", 77);
    stage.add(2, "a", 78);
    stage.work();
    stage.deliver({1});
    stage.reject(2);
    const auto& settled = stage.dispatcher.settled();
    ASSERT_EQ(settled.size(), 2u);
    EXPECT_EQ(settled[0].handle.token, 77);
    EXPECT_EQ(settled[0].reason, "");
    EXPECT_EQ(settled[1].handle.token, 78);
    EXPECT_EQ(settled[1].reason, "said of 2");
    EXPECT_EQ(settled[0].lane, settled[1].lane);
    EXPECT_EQ(stage.dispatcher.delivered(), 1u);
    EXPECT_EQ(stage.dispatcher.rejected(), 1u);
    stage.dispatcher.forget_settled(1);
    EXPECT_EQ(stage.settled(), "2-");
}

// ---- what comes back

TEST(PipelinedDispatcher, FromTheOneThatCameBackOnAllAreSentAgainWhenAllAreHome)
{
    for (const DeliveryStatus verdict : {DeliveryStatus::returned, DeliveryStatus::trouble}) {
        Stage stage;
        stage.add_together({1, 2, 3, 4});
        stage.answer(1, DeliveryStatus::delivered);
        stage.answer(2, verdict);
        stage.deliver({3}); // too early
        stage.add_together({5});
        stage.pass(1h);
        EXPECT_EQ(stage.settled(), "1+");
        EXPECT_EQ(stage.on_the_way(), (Parcels{{4}}));
        stage.give_back({4});
        EXPECT_EQ(stage.on_the_way(), (Parcels{{2}, {3}, {4}, {5}}));
        stage.deliver({2, 3, 4, 5});
        EXPECT_EQ(stage.settled(), "1+ 2+ 3+ 4+ 5+");
        EXPECT_EQ(stage.receiver.sent, (Parcels{{1}, {2}, {3}, {4}, {2}, {3}, {4}, {5}}));
        stage.expect_empty();
    }
}

TEST(PipelinedDispatcher, WhatIsReportedOutOfOrderAllTheSameGoesAgainInOrder)
{
    Stage stage;
    stage.add_together({1, 2, 3, 4});
    stage.answer(4, DeliveryStatus::delivered);
    stage.answer(3, DeliveryStatus::returned);
    stage.answer(1, DeliveryStatus::returned);
    stage.deliver({2});
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {2}, {3}, {4}}));
    stage.deliver({1, 2, 3, 4});
    EXPECT_EQ(stage.settled(), "1+ 2+ 3+ 4+");
    EXPECT_EQ(stage.dispatcher.delivered(), 4u);
    stage.expect_empty();
}

TEST(PipelinedDispatcher, WhatComesBackToOneAggregateDoesNotStopTheOthers)
{
    Stage stage({.capacity = 3});
    stage.add_together({1, 2});
    stage.add(3, "b");
    stage.add(4, "b");
    stage.work();
    stage.give_back({1});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}, {3}, {4}}));
    stage.deliver({3});
    EXPECT_EQ(stage.settled(), "3+");
    stage.give_back({2});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{4}, {1}, {2}}));
}

TEST(PipelinedDispatcher, WhatIsReturnedIsNoTrouble)
{
    Stage stage;
    stage.add_together({1, 2});
    for (int i = 0; i < 100; ++i)
        stage.give_back({1, 2});
    EXPECT_EQ(stage.dispatcher.troubles(), 0);
    EXPECT_FALSE(stage.dispatcher.is_backing_off(stage.now));
    EXPECT_EQ(stage.dispatcher.rejected(), 0u);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {2}}));
}

TEST(PipelinedDispatcher, WhatComesBackAtOnceWaitsForTheOthers)
{
    Stage stage;
    stage.receiver.at_once = {{2, DeliveryStatus::returned}};
    stage.add_together({1, 2, 3});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}}));
    stage.receiver.at_once.clear();
    stage.deliver({1});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}, {3}}));
    stage.deliver({2, 3});
    EXPECT_EQ(stage.settled(), "1+ 2+ 3+");
    stage.expect_empty();
}

TEST(PipelinedDispatcher, WhatIsDeliveredAtOnceIsSettledInItsPlace)
{
    Stage stage;
    stage.receiver.at_once = {{2, DeliveryStatus::delivered}, {4, DeliveryStatus::delivered}};
    stage.add_together({1, 2, 3});
    stage.add(4, "b");
    stage.work();
    EXPECT_EQ(stage.settled(), "4+");
    stage.deliver({1});
    EXPECT_EQ(stage.settled(), "4+ 1+ 2+");
    stage.deliver({3});
    stage.expect_empty();
}

// ---- rejected

TEST(PipelinedDispatcher, ARejectedEventIsSettledWhenNothingOfItsLaneIsOnTheWay)
{
    Stage stage;
    stage.add_together({1, 2, 3});
    stage.reject(1);
    EXPECT_EQ(stage.settled(), "");
    stage.give_back({2});
    EXPECT_EQ(stage.settled(), "");
    stage.give_back({3});
    EXPECT_EQ(stage.settled(), "1-");
    EXPECT_EQ(stage.on_the_way(), Parcels{});
    EXPECT_EQ(stage.dispatcher.rejected(), 1u);
    EXPECT_EQ(stage.dispatcher.troubles(), 0);
}

TEST(PipelinedDispatcher, ARejectedEventHoldsItsLane)
{
    Stage stage;
    for (const std::int64_t id : {1, 2, 3, 4})
        stage.add(id, "a", id < 3 ? 10 : 11);
    stage.work();
    stage.reject(1);
    stage.give_back({2, 3, 4});
    stage.add(5, "a", 11);
    stage.add(9, "b");
    stage.pass(1h);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{9}}));
    EXPECT_EQ(stage.behind(), (Ids{2, 3, 4, 5}));
    const SettledEvent rejected = stage.dispatcher.settled().at(0);
    for (const Handle& handle : stage.dispatcher.behind(rejected))
        EXPECT_EQ(handle.token, handle.id < 3 ? 10 : 11);

    stage.dispatcher.forget_settled(1);
    stage.pass(1h);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{9}}));
    stage.dispatcher.resume_behind(rejected, Ids{2, 4});
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{9}, {3}, {5}}));
    stage.deliver({9, 3, 5});
    EXPECT_EQ(stage.settled(), "9+ 3+ 5+");
    stage.expect_empty();
}

TEST(PipelinedDispatcher, ARejectionInTheMiddleWaitsForThoseBefore)
{
    Stage stage;
    stage.add_together({1, 2, 3});
    stage.answer(2, DeliveryStatus::rejected);
    stage.give_back({3});
    EXPECT_EQ(stage.settled(), "");
    stage.deliver({1});
    EXPECT_EQ(stage.settled(), "1+ 2-");
    EXPECT_EQ(stage.behind(1), (Ids{3}));
    stage.resume_behind(1);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}}));
}

TEST(PipelinedDispatcher, OneThatIsRejectedAtOnceStopsItsLane)
{
    Stage stage;
    stage.receiver.at_once = {{2, DeliveryStatus::rejected}};
    stage.add_together({1, 2, 3});
    stage.add(4, "b");
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {4}}));
    EXPECT_EQ(stage.dispatcher.on_the_way(), 2u);
    stage.deliver({1});
    EXPECT_EQ(stage.settled(), "1+ 2-");
    stage.resume_behind(1);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{4}, {3}}));
    stage.deliver({4, 3});
    EXPECT_EQ(stage.settled(), "1+ 2- 4+ 3+");
    stage.expect_empty();
}

TEST(PipelinedDispatcher, ManyThatAreRejectedAtOnceAreSettledOneAfterTheOther)
{
    Stage stage;
    stage.receiver.at_once = {{1, DeliveryStatus::rejected},
                              {2, DeliveryStatus::rejected},
                              {3, DeliveryStatus::rejected}};
    stage.add_together({1, 2, 3, 4});
    EXPECT_EQ(stage.settled(), "1-");
    EXPECT_EQ(stage.behind(0), (Ids{2, 3, 4}));
    stage.resume_behind(0);
    EXPECT_EQ(stage.settled(), "1- 2-");
    EXPECT_EQ(stage.behind(1), (Ids{3, 4}));
    stage.resume_behind(1, {3});
    EXPECT_EQ(stage.settled(), "1- 2-");
    EXPECT_EQ(stage.on_the_way(), (Parcels{{4}}));
    EXPECT_EQ(stage.receiver.times_sent(3), 0u);
    stage.deliver({4});
    stage.expect_empty();
}

TEST(PipelinedDispatcher, WhatWasDeliveredBehindARejectedEventGoesAgainUnlessItIsParked)
{
    for (const bool is_blocked : {true, false}) {
        Stage stage;
        stage.add_together({1, 2});
        stage.answer(1, DeliveryStatus::rejected);
        stage.deliver({2});
        EXPECT_EQ(stage.settled(), "1-");
        stage.resume_behind(0, is_blocked ? Ids{2} : Ids{});
        EXPECT_EQ(stage.on_the_way(), is_blocked ? Parcels{} : (Parcels{{2}}));
        if (!is_blocked)
            stage.deliver({2});
        EXPECT_EQ(stage.settled(), is_blocked ? "1-" : "1- 2+");
        stage.expect_empty();
    }
}

TEST(PipelinedDispatcher, BehindARejectedEventNobodyIsAskedToRefuseTwice)
{
    Stage stage;
    stage.add_together({1, 2, 3});
    stage.answer(1, DeliveryStatus::rejected);
    stage.answer(2, DeliveryStatus::rejected);
    stage.give_back({3});
    EXPECT_EQ(stage.settled(), "1-");
    stage.resume_behind(0);
    ASSERT_EQ(stage.settled(), "1- 2-");
    EXPECT_EQ(stage.dispatcher.settled()[1].reason, "said of 2");
    EXPECT_EQ(stage.receiver.times_sent(2), 1u);
    stage.resume_behind(1);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}}));
}

TEST(PipelinedDispatcher, ARejectionBehindOneThatCameBackIsForgotten)
{
    for (const std::size_t capacity : {4u, 1u}) {
        Stage stage;
        stage.add_together({1, 2});
        stage.receiver.capacity = capacity;
        stage.answer(2, DeliveryStatus::rejected);
        stage.give_back({1});
        EXPECT_EQ(stage.settled(), "");
        EXPECT_EQ(stage.on_the_way(), capacity > 1 ? (Parcels{{1}, {2}}) : (Parcels{{1}}));
        stage.deliver({1});
        stage.deliver({2});
        ASSERT_EQ(stage.settled(), "1+ 2+");
        EXPECT_EQ(stage.dispatcher.settled()[1].reason, "");
    }
}

TEST(PipelinedDispatcher, OneThatIsSentAgainIsJudgedAgain)
{
    for (const DeliveryStatus verdict : {DeliveryStatus::delivered, DeliveryStatus::returned}) {
        Stage stage;
        stage.add_together({1, 2, 3});
        stage.answer(1, DeliveryStatus::rejected);
        stage.answer(3, DeliveryStatus::rejected);
        stage.give_back({2});
        stage.resume_behind(0);
        ASSERT_EQ(stage.on_the_way(), (Parcels{{2}, {3}}));
        stage.answer(2, DeliveryStatus::delivered);
        stage.answer(3, verdict);
        stage.work();
        if (verdict == DeliveryStatus::returned) {
            ASSERT_EQ(stage.on_the_way(), (Parcels{{3}}));
            stage.deliver({3});
        }
        ASSERT_EQ(stage.settled(), "1- 2+ 3+");
        EXPECT_EQ(stage.dispatcher.settled()[2].reason, "");
        stage.expect_empty();
    }
}

TEST(PipelinedDispatcher, ALaneIsHeldAlsoWhenNothingIsBehindYet)
{
    Stage stage;
    stage.add_together({1});
    stage.reject(1);
    stage.add_together({2});
    EXPECT_EQ(stage.on_the_way(), Parcels{});
    stage.resume_behind();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
}

TEST(PipelinedDispatcher, WhenAllBehindARejectedEventIsParkedTheLaneIsFree)
{
    Stage stage;
    stage.add_together({1, 2, 3});
    stage.answer(1, DeliveryStatus::rejected);
    stage.give_back({2, 3});
    stage.resume_behind(0, {2, 3});
    stage.expect_empty();
    stage.resume_behind(0, {2, 3}); // nothing is left to go on with
    stage.add_together({4});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{4}}));
}

// ---- a lost lease

TEST(PipelinedDispatcher, WhatWaitsOfALostBatchIsForgotten)
{
    Stage stage({.capacity = 1});
    stage.add_together({1}, 10);
    stage.add(2, "a", 11);
    stage.add(3, "a", 12);
    stage.add(4, "b", 11);
    stage.dispatcher.drop_batch(11);
    EXPECT_EQ(stage.dispatcher.in_hand(), 2u);
    stage.deliver({1});
    stage.deliver({3});
    EXPECT_EQ(stage.settled(), "1+ 3+");
    EXPECT_EQ(stage.receiver.sent, (Parcels{{1}, {3}}));
    stage.expect_empty();
}

TEST(PipelinedDispatcher, WhatComesOfALostBatchIsIgnored)
{
    for (const DeliveryStatus verdict : {DeliveryStatus::delivered, DeliveryStatus::rejected,
                                         DeliveryStatus::trouble, DeliveryStatus::returned}) {
        Stage stage;
        stage.add(1, "a", 10);
        stage.add(2, "a", 11);
        stage.add(3, "a", 11);
        stage.work();
        stage.dispatcher.drop_batch(10);
        EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {2}, {3}}));
        stage.answer(1, verdict);
        if (verdict == DeliveryStatus::delivered)
            stage.deliver({2, 3});
        else
            stage.give_back({2, 3});
        stage.round(works);
        EXPECT_EQ(stage.settled(), "2+ 3+");
        EXPECT_EQ(stage.receiver.times_sent(1), 1u);
        stage.expect_empty();
    }
}

TEST(PipelinedDispatcher, WhatHasArrivedOfALostBatchIsNotSettled)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.add(3, "a", 10);
    stage.work();
    stage.deliver({2, 3});
    stage.dispatcher.drop_batch(11);
    EXPECT_EQ(stage.dispatcher.in_hand(), 3u);
    stage.deliver({1});
    EXPECT_EQ(stage.settled(), "1+ 3+");
    stage.expect_empty();
}

TEST(PipelinedDispatcher, WhatCameBackOfALostBatchDoesNotGoAgain)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.add(3, "a", 10);
    stage.add(4, "a", 11);
    stage.work();
    stage.answer(3, DeliveryStatus::delivered);
    stage.give_back({1, 4});
    stage.dispatcher.drop_batch(10);
    stage.pass(1h);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
    stage.give_back({2});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}, {4}}));
    stage.deliver({2, 4});
    EXPECT_EQ(stage.settled(), "2+ 4+");
    stage.expect_empty();
}

TEST(PipelinedDispatcher, ARejectionOfALostBatchHoldsNobody)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.work();
    stage.reject(1);
    stage.dispatcher.drop_batch(10);
    stage.give_back({2});
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
    stage.deliver({2});
    stage.expect_empty();
}

TEST(PipelinedDispatcher, WhatIsSettledOfALostBatchIsForgottenAndHoldsNobody)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.add_apart({3}, 10);
    stage.add_apart({4}, 11);
    stage.answer(1, DeliveryStatus::rejected);
    stage.give_back({2});
    stage.deliver({3, 4});
    EXPECT_EQ(stage.settled(), "1- 3+ 4+");
    stage.dispatcher.drop_batch(10);
    EXPECT_EQ(stage.settled(), "4+");
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
}

TEST(PipelinedDispatcher, TheHoldOfAnotherBatchStays)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.add(3, "a", 12);
    stage.work();
    stage.answer(1, DeliveryStatus::rejected);
    stage.give_back({2, 3});
    stage.dispatcher.drop_batch(11);
    stage.pass(1s);
    EXPECT_EQ(stage.on_the_way(), Parcels{});
    stage.resume_behind();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}}));
}

TEST(PipelinedDispatcher, TheSameEventInANewBatchIsSettledOnce)
{
    for (const bool ordered : {true, false}) {
        Stage stage({.ordered = ordered});
        stage.add(1, "a", 10);
        stage.work();
        stage.dispatcher.drop_batch(10);
        stage.add(1, "a", 11);
        stage.work();
        EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {1}}));
        stage.deliver({1});
        EXPECT_EQ(stage.settled(), "");
        stage.deliver({1});
        ASSERT_EQ(stage.settled(), "1+");
        EXPECT_EQ(stage.dispatcher.settled()[0].handle.token, 11);
        stage.expect_empty();
    }
}

// ---- how much it wants

TEST(PipelinedDispatcher, ClaimsComeInPiecesSoThatTheSinkHasSomethingToDoMeanwhile)
{
    Stage stage({.capacity = 10'000});
    EXPECT_EQ(stage.dispatcher.wanted(), 2'500u);
}

TEST(PipelinedDispatcher, ButNotForNextToNothing)
{
    EXPECT_EQ(Stage({.capacity = 2'000}).dispatcher.wanted(), 1'000u);
    EXPECT_EQ(Stage({.capacity = 10}).dispatcher.wanted(), 10u);
    EXPECT_EQ(Stage({.capacity = 1}).dispatcher.wanted(), 1u);
}

TEST(PipelinedDispatcher, WhatWasSentGoesOutWithTheNextWork)
{
    Stage stage({.capacity = 10});
    stage.add(1, "a");
    stage.dispatcher.send_early(stage.now);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}}));
    stage.work();
    EXPECT_EQ(stage.receiver.started, 1u);
}

// ---- memory

TEST(PipelinedDispatcher, MemoryIsKeptForOthersAsLongAsThereAreAny)
{
    const auto kept = [](Stage& stage) {
        return stage.dispatcher.event_pool().take()->payload.capacity() > 40;
    };
    Stage stage;
    stage.add_apart({45, 46, 47});
    stage.deliver({45, 46});
    EXPECT_TRUE(kept(stage));
    stage.deliver({47});
    EXPECT_FALSE(kept(stage));
    stage.add_apart({48, 49});
    stage.deliver({48});
    stage.dispatcher.abandon();
    EXPECT_FALSE(kept(stage));
}

} // namespace
