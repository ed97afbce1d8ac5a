#include "dispatcher_stage.hpp"
#include "sink/dispatch/serial_dispatcher.hpp"

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;

using Stage = test::Stage<LaneCourier>;

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
    stage.courier.add(std::make_unique<Event>(other));
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
    stage.courier.add(std::make_unique<Event>(event));
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

} // namespace
