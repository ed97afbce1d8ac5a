#include "dispatcher_stage.hpp"
#include "sink/dispatch/serial_dispatcher.hpp"

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;

using Stage = test::Stage<LaneCourier>;

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

TEST(LaneCourier, AParcelWaitsForThoseThatCouldTravelWithIt)
{
    Stage stage({.parcel_size = 3});
    for (const std::int64_t id : {1, 2, 3}) {
        stage.add(id, "a");
        stage.courier.send_early(stage.now);
    }
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1, 2, 3}}));
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

} // namespace
