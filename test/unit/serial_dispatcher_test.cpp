#include "dispatcher_stage.hpp"
#include "sink/dispatch/serial_dispatcher.hpp"

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;

using Stage = test::Stage<SerialDispatcher>;

// ---- order

TEST(SerialDispatcher, WithOrderTheNextOfAnAggregateStartsWhenTheFirstIsDelivered)
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

TEST(SerialDispatcher, AggregatesDoNotWaitForEachOther)
{
    Stage stage({.capacity = 10});
    for (const std::int64_t id : {1, 2, 3, 4, 5, 6})
        stage.add(id, id % 2 ? "odd" : "even");
    Event other;
    other.id = 7;
    other.aggregate_type = "customer";
    other.aggregate_id = "odd"; // the same id, but of something else
    stage.dispatcher.add(std::make_unique<Event>(other));
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {2}, {7}}));
    stage.deliver({2});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {7}, {4}}));
}

TEST(SerialDispatcher, WithoutOrderEverythingGoesUpToTheCapacity)
{
    Stage stage({.capacity = 3, .ordered = false});
    for (const std::int64_t id : {1, 2, 3, 4, 5})
        stage.add(id, "a");
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {2}, {3}}));
    EXPECT_EQ(stage.dispatcher.on_the_way(), 3u);
    stage.deliver({2});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {3}, {4}}));
    stage.deliver({4, 3, 1});
    EXPECT_EQ(stage.settled(), "2+ 4+ 3+ 1+");
    EXPECT_EQ(stage.on_the_way(), (Parcels{{5}}));
}

TEST(SerialDispatcher, ASettlementNamesTheBatchAndSaysWhy)
{
    Stage stage;
    stage.add(1, "a", 77);
    stage.add(2, "b", 78);
    stage.work();
    stage.deliver({1});
    stage.reject(2);
    const auto& settled = stage.dispatcher.settled();
    ASSERT_EQ(settled.size(), 2u);
    EXPECT_EQ(settled[0].handle.token, 77);
    EXPECT_EQ(settled[0].reason, "");
    EXPECT_EQ(settled[1].handle.token, 78);
    EXPECT_EQ(settled[1].reason, "said of 2");
    EXPECT_EQ(stage.dispatcher.delivered(), 1u);
    EXPECT_EQ(stage.dispatcher.rejected(), 1u);
    stage.dispatcher.forget_settled(1);
    EXPECT_EQ(stage.settled(), "2-");
}

// ---- rejected

TEST(SerialDispatcher, ARejectedEventHoldsItsLane)
{
    Stage stage;
    for (const std::int64_t id : {1, 2, 3, 4})
        stage.add(id, "a", id < 3 ? 10 : 11);
    stage.add_apart({9});
    stage.reject(1);
    stage.add(5, "a", 11);
    stage.pass(1h);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{9}}));
    const SettledEvent rejected = stage.dispatcher.settled().at(0);
    Ids behind;
    for (const Handle& handle : stage.dispatcher.behind(rejected)) {
        behind.push_back(handle.id);
        EXPECT_EQ(handle.token, handle.id < 3 ? 10 : 11);
    }
    EXPECT_EQ(behind, (Ids{2, 3, 4, 5}));

    stage.dispatcher.forget_settled(1);
    stage.pass(1h);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{9}}));
    stage.dispatcher.resume_behind(rejected, Ids{2, 4});
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{9}, {3}}));
    stage.deliver({9, 3});
    stage.deliver({5});
    EXPECT_EQ(stage.settled(), "9+ 3+ 5+");
    stage.expect_empty();
}

TEST(SerialDispatcher, WhenAllBehindARejectedEventIsParkedTheLaneIsFree)
{
    Stage stage;
    stage.add(1, "a");
    stage.add(2, "a");
    stage.work();
    stage.reject(1);
    stage.dispatcher.resume_behind(stage.dispatcher.settled().at(0), Ids{2});
    stage.expect_empty();
    stage.add(3, "a");
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}}));
}

TEST(SerialDispatcher, ALaneIsHeldAlsoWhenNothingIsBehindYet)
{
    Stage stage;
    stage.add_apart({1});
    stage.reject(1);
    stage.add(2, "of 1");
    stage.work();
    EXPECT_EQ(stage.on_the_way(), Parcels{});
    stage.dispatcher.resume_behind(stage.dispatcher.settled().at(0), {});
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
}

TEST(SerialDispatcher, WithoutOrderARejectedEventHoldsNobody)
{
    Stage stage({.capacity = 1, .ordered = false});
    stage.add(1, "a");
    stage.add(2, "a");
    stage.work();
    stage.reject(1);
    EXPECT_TRUE(stage.dispatcher.behind(stage.dispatcher.settled().at(0)).empty());
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}}));
}

// ---- the end

TEST(SerialDispatcher, WhoIsGoneGetsNothingMore)
{
    Stage stage;
    stage.add_apart({1, 2, 3, 4, 5});
    EXPECT_FALSE(stage.dispatcher.gone());
    stage.answer(1, DeliveryStatus::gone);
    stage.deliver({2});
    EXPECT_EQ(stage.dispatcher.gone(), "said of 1");
    EXPECT_EQ(stage.dispatcher.last_trouble(), "said of 1");
    stage.pass(1h);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}, {4}}));
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now));
    stage.deliver({3, 4});
    EXPECT_EQ(stage.settled(), "2+ 3+ 4+");
    EXPECT_EQ(stage.dispatcher.in_hand(), 2u); // nobody was rejected
}

TEST(SerialDispatcher, WhoFinishesSendsNothingMoreButListens)
{
    Stage stage;
    stage.add_apart({1, 2, 3, 4, 5});
    stage.dispatcher.finish();
    stage.deliver({1});
    stage.trouble({2});
    stage.pass(1h);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}, {4}}));
    stage.deliver({3, 4});
    EXPECT_EQ(stage.settled(), "1+ 3+ 4+");
    EXPECT_EQ(stage.dispatcher.on_the_way(), 0u);
    EXPECT_EQ(stage.dispatcher.in_hand(), 2u);
}

TEST(SerialDispatcher, WhoAbandonsHasNothingInHand)
{
    Stage stage({.max_events_per_request = 2});
    stage.add_apart({1});
    stage.add_apart({2, 3});
    stage.add_apart({4});
    stage.deliver({4});
    stage.add(5, "of 1");
    stage.trouble({2});
    stage.add_apart({6});
    stage.answer(1, DeliveryStatus::rejected); // comes too late
    stage.dispatcher.abandon();
    EXPECT_TRUE(stage.dispatcher.is_backing_off(stage.now)); // nothing has changed about that
    EXPECT_EQ(stage.dispatcher.next_work(), std::nullopt);
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

TEST(SerialDispatcher, CountsWhatIsInHand)
{
    Stage stage;
    EXPECT_EQ(stage.dispatcher.bytes(), 0u);
    Event event;
    event.id = 1;
    event.payload = std::string(1000, 'x');
    const std::size_t size = event.size();
    stage.dispatcher.add(std::make_unique<Event>(event));
    EXPECT_EQ(stage.dispatcher.bytes(), size);
    stage.add(2, "b");
    EXPECT_GT(stage.dispatcher.bytes(), size + sizeof(Event) - 1);
    EXPECT_EQ(stage.dispatcher.in_hand(), 2u);
    stage.work();
    EXPECT_EQ(stage.dispatcher.in_hand(), 2u);
    stage.reject(2);
    EXPECT_EQ(stage.dispatcher.bytes(), size);
    stage.deliver({1});
    stage.expect_empty();
}

TEST(SerialDispatcher, WantsEnoughToKeepTheSinkBusy)
{
    EXPECT_EQ(Stage({.capacity = 1}).dispatcher.wanted(), 256u);
    EXPECT_EQ(Stage({.capacity = 100}).dispatcher.wanted(), 400u);
    EXPECT_EQ(Stage({.capacity = 16, .max_events_per_request = 100}).dispatcher.wanted(), 6400u);
    EXPECT_EQ(Stage({.capacity = 256, .max_events_per_request = 10'000}).dispatcher.wanted(),
              10'000u);

    Stage stage;
    for (std::int64_t id = 1; stage.dispatcher.can_take_more(stage.now) && id < 1000; ++id)
        stage.add(id, "of " + std::to_string(id));
    EXPECT_EQ(stage.dispatcher.in_hand(), stage.dispatcher.wanted() / 2);
}

TEST(SerialDispatcher, AHotAggregateDoesNotKeepTheOthersAway)
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
    EXPECT_EQ(full.dispatcher.in_hand(), 10'000u);
}

TEST(SerialDispatcher, InTroubleItWantsNoMoreThanProbes)
{
    Stage stage;
    stage.add_apart({1});
    stage.trouble({1});
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now));
    stage.now += 1s;
    EXPECT_TRUE(stage.dispatcher.can_take_more(stage.now));
    stage.add_apart({2});
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now));
    stage.deliver({1});
    EXPECT_TRUE(stage.dispatcher.can_take_more(stage.now));
}

TEST(SerialDispatcher, IsToWorkWhenThePauseEnds)
{
    Stage stage;
    EXPECT_EQ(stage.dispatcher.next_work(), std::nullopt);
    stage.receiver.next_work = stage.now + 5s;
    EXPECT_EQ(stage.dispatcher.next_work(), stage.now + 5s);
    stage.add_apart({1, 2, 3});
    stage.trouble({1});
    EXPECT_EQ(stage.dispatcher.next_work(), stage.now + 5s - 1ms); // two are on the way
    stage.trouble({2});
    EXPECT_EQ(stage.dispatcher.next_work(), stage.dispatcher.resume_at());
    stage.receiver.next_work = std::nullopt;
    EXPECT_EQ(stage.dispatcher.next_work(), stage.dispatcher.resume_at());
    stage.receiver.next_work = stage.now + 1ms;
    EXPECT_EQ(stage.dispatcher.next_work(), stage.now + 1ms);
}

TEST(SerialDispatcher, WithNothingToSendThePauseIsNoReasonToWork)
{
    Stage stage;
    stage.add_apart({1, 2});
    stage.answer(1, DeliveryStatus::trouble, 1s);
    stage.pass(1ms);
    stage.pass(1s);
    stage.deliver({1, 2});
    stage.expect_empty();
    EXPECT_EQ(stage.dispatcher.next_work(), std::nullopt);
}

TEST(SerialDispatcher, PassesOnWhatTheSinkHas)
{
    Stage stage;
    EXPECT_EQ(stage.dispatcher.descriptor(), 42);
    EXPECT_EQ(stage.dispatcher.metadata(), std::vector<std::string>{"region"});
}

} // namespace
