#include "sink/dispatch/pipelined_dispatcher.hpp"

#include "dispatcher_stage.hpp"
#include "sink/dispatch/serial_dispatcher.hpp"

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;

struct Stage : test::Stage<StreamCourier> {
    explicit Stage(Receiver setting = {}) : test::Stage<StreamCourier>(in_order(std::move(setting)))
    {}

    static Receiver in_order(Receiver setting)
    {
        setting.keeps_order = true;
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
            answer(id, Verdict::returned);
        work();
    }

    Ids behind(std::size_t settlement = 0) const
    {
        Ids ids;
        for (const Handle& handle : courier.behind(courier.settled().at(settlement)))
            ids.push_back(handle.id);
        return ids;
    }

    void go_on_behind(std::size_t settlement = 0, const Ids& parked = {})
    {
        courier.go_on_behind(courier.settled().at(settlement), parked);
        work();
    }
};

// ---- order

TEST(StreamCourier, InANewStreamOneIsDeliveredBeforeTheOthersFollow)
{
    Stage stage({.streams = {{1, 7}, {2, 7}, {3, 7}}});
    stage.add_together({1, 2, 3});
    EXPECT_EQ(stage.receiver.sent, (Parcels{{1}}));
    stage.answer(1, Verdict::delivered);
    stage.work();
    EXPECT_EQ(stage.receiver.sent, (Parcels{{1}, {2}, {3}}));
}

TEST(StreamCourier, InAnotherStreamItIsTheSameAgain)
{
    Stage stage({.streams = {{1, 7}, {2, 7}, {3, 8}, {4, 8}}});
    stage.add_together({1, 2, 3, 4});
    stage.answer(1, Verdict::delivered);
    stage.work();
    EXPECT_EQ(stage.receiver.sent, (Parcels{{1}, {2}}));
    stage.answer(2, Verdict::delivered);
    stage.work();
    EXPECT_EQ(stage.receiver.sent, (Parcels{{1}, {2}, {3}}));
    stage.answer(3, Verdict::delivered);
    stage.work();
    EXPECT_EQ(stage.receiver.sent, (Parcels{{1}, {2}, {3}, {4}}));
}

TEST(StreamCourier, BehindOneInAnotherStreamNothingGoesInTheOld)
{
    Stage stage({.streams = {{1, 7}, {2, 8}, {3, 7}}});
    stage.add_together({1, 2, 3});
    stage.answer(1, Verdict::delivered);
    stage.work();
    EXPECT_EQ(stage.receiver.sent, (Parcels{{1}, {2}}));
    stage.answer(2, Verdict::delivered);
    stage.work();
    EXPECT_EQ(stage.receiver.sent, (Parcels{{1}, {2}, {3}}));
}

TEST(StreamCourier, TroubleOfOneAloneIsItsOwnInTheEnd)
{
    Stage stage;
    stage.add(1, "a");
    stage.work();
    for (std::int64_t other = 10; other < 14 && stage.courier.settled().size() < 20; ++other) {
        stage.answer(1, Verdict::trouble);
        stage.work();
        stage.add(other, "b");
        stage.pass(std::chrono::hours(1));
        stage.work();
        stage.answer(other, Verdict::delivered);
        stage.work();
        const auto& settled = stage.courier.settled();
        if (std::ranges::any_of(settled, [](const Settlement& s) { return !s.delivered; }))
            break;
    }
    const auto& settled = stage.courier.settled();
    const auto rejected = std::ranges::find(settled, false, &Settlement::delivered);
    ASSERT_NE(rejected, settled.end());
    EXPECT_EQ(rejected->handle.id, 1);
}

TEST(StreamCourier, IsForSinksThatKeepTheOrder)
{
    for (const bool keeps_order : {true, false}) {
        Receiver receiver{.keeps_order = keeps_order};
        const auto courier = make_courier(std::make_unique<ScriptedSink>(receiver), true,
                                          Stage::policy, [] { return 0.0; });
        EXPECT_EQ(dynamic_cast<StreamCourier*>(courier.get()) != nullptr, keeps_order);
        EXPECT_EQ(dynamic_cast<LaneCourier*>(courier.get()) != nullptr, !keeps_order);
    }
}

TEST(StreamCourier, ManyOfAnAggregateAreOnTheWayUpToTheCapacity)
{
    Stage stage;
    stage.add_together({1, 2, 3, 4, 5, 6});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {2}, {3}, {4}}));
    EXPECT_EQ(stage.courier.on_the_way(), 4u);
    stage.deliver({1});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}, {3}, {4}, {5}}));
    stage.deliver({2, 3, 4, 5});
    stage.deliver({6});
    EXPECT_EQ(stage.settled(), "1+ 2+ 3+ 4+ 5+ 6+");
    EXPECT_EQ(stage.courier.delivered(), 6u);
    stage.expect_empty();
}

TEST(StreamCourier, SettlesAnAggregateInItsOrderWhateverOrderTheReportsHave)
{
    Stage stage({.capacity = 10});
    stage.add_together({1, 2, 3, 4});
    stage.add(9, "b");
    stage.work();
    stage.deliver({3});
    stage.deliver({2});
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.courier.in_hand(), 5u);
    EXPECT_EQ(stage.courier.on_the_way(), 3u);
    stage.deliver({9});
    EXPECT_EQ(stage.settled(), "9+");
    stage.deliver({1});
    EXPECT_EQ(stage.settled(), "9+ 1+ 2+ 3+");
    stage.deliver({4});
    EXPECT_EQ(stage.settled(), "9+ 1+ 2+ 3+ 4+");
    stage.expect_empty();
}

TEST(StreamCourier, AHotAggregateDoesNotKeepTheOthersAway)
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

TEST(StreamCourier, WithoutOrderEachEventIsByItself)
{
    Stage stage({.ordered = false});
    stage.add_together({1, 2, 3, 4, 5});
    stage.answer(2, Verdict::rejected);
    stage.deliver({4, 3});
    EXPECT_EQ(stage.settled(), "2- 4+ 3+");
    EXPECT_EQ(stage.behind(0), Ids{});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {5}}));
    stage.give_back({1});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{5}, {1}}));
    stage.deliver({5, 1});
    EXPECT_EQ(stage.settled(), "2- 4+ 3+ 5+ 1+");
    stage.go_on_behind(0);
    stage.expect_empty();
}

TEST(StreamCourier, ASettlementNamesTheBatchAndSaysWhy)
{
    Stage stage;
    stage.add(1, "a", 77);
    stage.add(2, "a", 78);
    stage.work();
    stage.deliver({1});
    stage.reject(2);
    const auto& settled = stage.courier.settled();
    ASSERT_EQ(settled.size(), 2u);
    EXPECT_EQ(settled[0].handle.token, 77);
    EXPECT_EQ(settled[0].reason, "");
    EXPECT_EQ(settled[1].handle.token, 78);
    EXPECT_EQ(settled[1].reason, "said of 2");
    EXPECT_EQ(settled[0].lane, settled[1].lane);
    EXPECT_EQ(stage.courier.delivered(), 1u);
    EXPECT_EQ(stage.courier.rejected(), 1u);
    stage.courier.forget_settled(1);
    EXPECT_EQ(stage.settled(), "2-");
}

// ---- what comes back

TEST(StreamCourier, FromTheOneThatCameBackOnAllAreSentAgainWhenAllAreHome)
{
    for (const Verdict verdict : {Verdict::returned, Verdict::trouble}) {
        Stage stage;
        stage.add_together({1, 2, 3, 4});
        stage.answer(1, Verdict::delivered);
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

TEST(StreamCourier, WhatIsReportedOutOfOrderAllTheSameGoesAgainInOrder)
{
    Stage stage;
    stage.add_together({1, 2, 3, 4});
    stage.answer(4, Verdict::delivered);
    stage.answer(3, Verdict::returned);
    stage.answer(1, Verdict::returned);
    stage.deliver({2});
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {2}, {3}, {4}}));
    stage.deliver({1, 2, 3, 4});
    EXPECT_EQ(stage.settled(), "1+ 2+ 3+ 4+");
    EXPECT_EQ(stage.courier.delivered(), 4u);
    stage.expect_empty();
}

TEST(StreamCourier, WhatComesBackToOneAggregateDoesNotStopTheOthers)
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

TEST(StreamCourier, WhatIsReturnedIsNoTrouble)
{
    Stage stage;
    stage.add_together({1, 2});
    for (int i = 0; i < 100; ++i)
        stage.give_back({1, 2});
    EXPECT_EQ(stage.courier.troubles(), 0);
    EXPECT_FALSE(stage.courier.is_backing_off(stage.now));
    EXPECT_EQ(stage.courier.rejected(), 0u);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {2}}));
}

TEST(StreamCourier, WhatComesBackAtOnceWaitsForTheOthers)
{
    Stage stage;
    stage.receiver.at_once = {{2, Verdict::returned}};
    stage.add_together({1, 2, 3});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}}));
    stage.receiver.at_once.clear();
    stage.deliver({1});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}, {3}}));
    stage.deliver({2, 3});
    EXPECT_EQ(stage.settled(), "1+ 2+ 3+");
    stage.expect_empty();
}

TEST(StreamCourier, WhatIsDeliveredAtOnceIsSettledInItsPlace)
{
    Stage stage;
    stage.receiver.at_once = {{2, Verdict::delivered}, {4, Verdict::delivered}};
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

TEST(StreamCourier, ARejectedEventIsSettledWhenNothingOfItsLaneIsOnTheWay)
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
    EXPECT_EQ(stage.courier.rejected(), 1u);
    EXPECT_EQ(stage.courier.troubles(), 0);
}

TEST(StreamCourier, ARejectedEventHoldsItsLane)
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
    const Settlement rejected = stage.courier.settled().at(0);
    for (const Handle& handle : stage.courier.behind(rejected))
        EXPECT_EQ(handle.token, handle.id < 3 ? 10 : 11);

    stage.courier.forget_settled(1);
    stage.pass(1h);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{9}}));
    stage.courier.go_on_behind(rejected, Ids{2, 4});
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{9}, {3}, {5}}));
    stage.deliver({9, 3, 5});
    EXPECT_EQ(stage.settled(), "9+ 3+ 5+");
    stage.expect_empty();
}

TEST(StreamCourier, ARejectionInTheMiddleWaitsForThoseBefore)
{
    Stage stage;
    stage.add_together({1, 2, 3});
    stage.answer(2, Verdict::rejected);
    stage.give_back({3});
    EXPECT_EQ(stage.settled(), "");
    stage.deliver({1});
    EXPECT_EQ(stage.settled(), "1+ 2-");
    EXPECT_EQ(stage.behind(1), (Ids{3}));
    stage.go_on_behind(1);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}}));
}

TEST(StreamCourier, OneThatIsRejectedAtOnceStopsItsLane)
{
    Stage stage;
    stage.receiver.at_once = {{2, Verdict::rejected}};
    stage.add_together({1, 2, 3});
    stage.add(4, "b");
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {4}}));
    EXPECT_EQ(stage.courier.on_the_way(), 2u);
    stage.deliver({1});
    EXPECT_EQ(stage.settled(), "1+ 2-");
    stage.go_on_behind(1);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{4}, {3}}));
    stage.deliver({4, 3});
    EXPECT_EQ(stage.settled(), "1+ 2- 4+ 3+");
    stage.expect_empty();
}

TEST(StreamCourier, ManyThatAreRejectedAtOnceAreSettledOneAfterTheOther)
{
    Stage stage;
    stage.receiver.at_once = {
        {1, Verdict::rejected}, {2, Verdict::rejected}, {3, Verdict::rejected}};
    stage.add_together({1, 2, 3, 4});
    EXPECT_EQ(stage.settled(), "1-");
    EXPECT_EQ(stage.behind(0), (Ids{2, 3, 4}));
    stage.go_on_behind(0);
    EXPECT_EQ(stage.settled(), "1- 2-");
    EXPECT_EQ(stage.behind(1), (Ids{3, 4}));
    stage.go_on_behind(1, {3});
    EXPECT_EQ(stage.settled(), "1- 2-");
    EXPECT_EQ(stage.on_the_way(), (Parcels{{4}}));
    EXPECT_EQ(stage.receiver.times_sent(3), 0u);
    stage.deliver({4});
    stage.expect_empty();
}

TEST(StreamCourier, WhatWasDeliveredBehindARejectedEventGoesAgainUnlessItIsParked)
{
    for (const bool is_parked : {true, false}) {
        Stage stage;
        stage.add_together({1, 2});
        stage.answer(1, Verdict::rejected);
        stage.deliver({2});
        EXPECT_EQ(stage.settled(), "1-");
        stage.go_on_behind(0, is_parked ? Ids{2} : Ids{});
        EXPECT_EQ(stage.on_the_way(), is_parked ? Parcels{} : (Parcels{{2}}));
        if (!is_parked)
            stage.deliver({2});
        EXPECT_EQ(stage.settled(), is_parked ? "1-" : "1- 2+");
        stage.expect_empty();
    }
}

TEST(StreamCourier, BehindARejectedEventNobodyIsAskedToRefuseTwice)
{
    Stage stage;
    stage.add_together({1, 2, 3});
    stage.answer(1, Verdict::rejected);
    stage.answer(2, Verdict::rejected);
    stage.give_back({3});
    EXPECT_EQ(stage.settled(), "1-");
    stage.go_on_behind(0);
    ASSERT_EQ(stage.settled(), "1- 2-");
    EXPECT_EQ(stage.courier.settled()[1].reason, "said of 2");
    EXPECT_EQ(stage.receiver.times_sent(2), 1u);
    stage.go_on_behind(1);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}}));
}

TEST(StreamCourier, ARejectionBehindOneThatCameBackIsForgotten)
{
    for (const std::size_t capacity : {4u, 1u}) {
        Stage stage;
        stage.add_together({1, 2});
        stage.receiver.capacity = capacity;
        stage.answer(2, Verdict::rejected);
        stage.give_back({1});
        EXPECT_EQ(stage.settled(), "");
        EXPECT_EQ(stage.on_the_way(), capacity > 1 ? (Parcels{{1}, {2}}) : (Parcels{{1}}));
        stage.deliver({1});
        stage.deliver({2});
        ASSERT_EQ(stage.settled(), "1+ 2+");
        EXPECT_EQ(stage.courier.settled()[1].reason, "");
    }
}

TEST(StreamCourier, OneThatIsSentAgainIsJudgedAgain)
{
    for (const Verdict verdict : {Verdict::delivered, Verdict::returned}) {
        Stage stage;
        stage.add_together({1, 2, 3});
        stage.answer(1, Verdict::rejected);
        stage.answer(3, Verdict::rejected);
        stage.give_back({2});
        stage.go_on_behind(0);
        ASSERT_EQ(stage.on_the_way(), (Parcels{{2}, {3}}));
        stage.answer(2, Verdict::delivered);
        stage.answer(3, verdict);
        stage.work();
        if (verdict == Verdict::returned) {
            ASSERT_EQ(stage.on_the_way(), (Parcels{{3}}));
            stage.deliver({3});
        }
        ASSERT_EQ(stage.settled(), "1- 2+ 3+");
        EXPECT_EQ(stage.courier.settled()[2].reason, "");
        stage.expect_empty();
    }
}

TEST(StreamCourier, ALaneIsHeldAlsoWhenNothingIsBehindYet)
{
    Stage stage;
    stage.add_together({1});
    stage.reject(1);
    stage.add_together({2});
    EXPECT_EQ(stage.on_the_way(), Parcels{});
    stage.go_on_behind();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
}

TEST(StreamCourier, WhenAllBehindARejectedEventIsParkedTheLaneIsFree)
{
    Stage stage;
    stage.add_together({1, 2, 3});
    stage.answer(1, Verdict::rejected);
    stage.give_back({2, 3});
    stage.go_on_behind(0, {2, 3});
    stage.expect_empty();
    stage.go_on_behind(0, {2, 3}); // nothing is left to go on with
    stage.add_together({4});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{4}}));
}

// ---- a lost lease

TEST(StreamCourier, WhatWaitsOfALostBatchIsForgotten)
{
    Stage stage({.capacity = 1});
    stage.add_together({1}, 10);
    stage.add(2, "a", 11);
    stage.add(3, "a", 12);
    stage.add(4, "b", 11);
    stage.courier.drop_batch(11);
    EXPECT_EQ(stage.courier.in_hand(), 2u);
    stage.deliver({1});
    stage.deliver({3});
    EXPECT_EQ(stage.settled(), "1+ 3+");
    EXPECT_EQ(stage.receiver.sent, (Parcels{{1}, {3}}));
    stage.expect_empty();
}

TEST(StreamCourier, WhatComesOfALostBatchIsIgnored)
{
    for (const Verdict verdict :
         {Verdict::delivered, Verdict::rejected, Verdict::trouble, Verdict::returned}) {
        Stage stage;
        stage.add(1, "a", 10);
        stage.add(2, "a", 11);
        stage.add(3, "a", 11);
        stage.work();
        stage.courier.drop_batch(10);
        EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {2}, {3}}));
        stage.answer(1, verdict);
        if (verdict == Verdict::delivered)
            stage.deliver({2, 3});
        else
            stage.give_back({2, 3});
        stage.round(works);
        EXPECT_EQ(stage.settled(), "2+ 3+");
        EXPECT_EQ(stage.receiver.times_sent(1), 1u);
        stage.expect_empty();
    }
}

TEST(StreamCourier, WhatHasArrivedOfALostBatchIsNotSettled)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.add(3, "a", 10);
    stage.work();
    stage.deliver({2, 3});
    stage.courier.drop_batch(11);
    EXPECT_EQ(stage.courier.in_hand(), 3u);
    stage.deliver({1});
    EXPECT_EQ(stage.settled(), "1+ 3+");
    stage.expect_empty();
}

TEST(StreamCourier, WhatCameBackOfALostBatchDoesNotGoAgain)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.add(3, "a", 10);
    stage.add(4, "a", 11);
    stage.work();
    stage.answer(3, Verdict::delivered);
    stage.give_back({1, 4});
    stage.courier.drop_batch(10);
    stage.pass(1h);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
    stage.give_back({2});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}, {4}}));
    stage.deliver({2, 4});
    EXPECT_EQ(stage.settled(), "2+ 4+");
    stage.expect_empty();
}

TEST(StreamCourier, ARejectionOfALostBatchHoldsNobody)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.work();
    stage.reject(1);
    stage.courier.drop_batch(10);
    stage.give_back({2});
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
    stage.deliver({2});
    stage.expect_empty();
}

TEST(StreamCourier, WhatIsSettledOfALostBatchIsForgottenAndHoldsNobody)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.add_apart({3}, 10);
    stage.add_apart({4}, 11);
    stage.answer(1, Verdict::rejected);
    stage.give_back({2});
    stage.deliver({3, 4});
    EXPECT_EQ(stage.settled(), "1- 3+ 4+");
    stage.courier.drop_batch(10);
    EXPECT_EQ(stage.settled(), "4+");
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
}

TEST(StreamCourier, TheHoldOfAnotherBatchStays)
{
    Stage stage;
    stage.add(1, "a", 10);
    stage.add(2, "a", 11);
    stage.add(3, "a", 12);
    stage.work();
    stage.answer(1, Verdict::rejected);
    stage.give_back({2, 3});
    stage.courier.drop_batch(11);
    stage.pass(1s);
    EXPECT_EQ(stage.on_the_way(), Parcels{});
    stage.go_on_behind();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}}));
}

TEST(StreamCourier, TheSameEventInANewBatchIsSettledOnce)
{
    for (const bool ordered : {true, false}) {
        Stage stage({.ordered = ordered});
        stage.add(1, "a", 10);
        stage.work();
        stage.courier.drop_batch(10);
        stage.add(1, "a", 11);
        stage.work();
        EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {1}}));
        stage.deliver({1});
        EXPECT_EQ(stage.settled(), "");
        stage.deliver({1});
        ASSERT_EQ(stage.settled(), "1+");
        EXPECT_EQ(stage.courier.settled()[0].handle.token, 11);
        stage.expect_empty();
    }
}

// ---- how much it wants

TEST(StreamCourier, ClaimsComeInPiecesSoThatTheSinkHasSomethingToDoMeanwhile)
{
    Stage stage({.capacity = 10'000});
    EXPECT_EQ(stage.courier.wanted(), 2'500u);
}

TEST(StreamCourier, ButNotForNextToNothing)
{
    EXPECT_EQ(Stage({.capacity = 2'000}).courier.wanted(), 1'000u);
    EXPECT_EQ(Stage({.capacity = 10}).courier.wanted(), 10u);
    EXPECT_EQ(Stage({.capacity = 1}).courier.wanted(), 1u);
}

TEST(StreamCourier, WhatWasSentGoesOutWithTheNextWork)
{
    Stage stage({.capacity = 10});
    stage.add(1, "a");
    stage.courier.send_early(stage.now);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}}));
    stage.work();
    EXPECT_EQ(stage.receiver.started, 1u);
}

// ---- memory

TEST(StreamCourier, MemoryIsKeptForOthersAsLongAsThereAreAny)
{
    const auto kept = [](Stage& stage) {
        return stage.courier.spare_events().take()->payload.capacity() > 40;
    };
    Stage stage;
    stage.add_apart({45, 46, 47});
    stage.deliver({45, 46});
    EXPECT_TRUE(kept(stage));
    stage.deliver({47});
    EXPECT_FALSE(kept(stage));
    stage.add_apart({48, 49});
    stage.deliver({48});
    stage.courier.abandon();
    EXPECT_FALSE(kept(stage));
}

} // namespace
