#include "dispatcher_stage.hpp"
#include "sink/dispatch/pipelined_dispatcher.hpp"

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;

using Stage = test::Stage<PipelinedDispatcher>;

Receiver stream(std::size_t capacity = 4)
{
    return {.capacity = capacity, .preserves_order = true};
}

// ---- trouble

TEST(PipelinedDispatcher, InTroubleNothingIsSentUntilThePauseIsOver)
{
    Stage stage(stream());
    stage.add_apart({1, 2, 3, 4, 5, 6});
    stage.trouble({1, 2, 3, 4});
    EXPECT_EQ(stage.pause(), 1s);
    EXPECT_EQ(stage.dispatcher.last_trouble(), "said of 4");
    EXPECT_TRUE(stage.dispatcher.is_backing_off(stage.now));
    EXPECT_EQ(stage.dispatcher.next_work(), stage.dispatcher.resume_at());
    stage.pass(1s - 1ns);
    EXPECT_EQ(stage.on_the_way(), Parcels{});
    stage.pass(1ns);
    EXPECT_EQ(stage.on_the_way().size(), 2u);
    EXPECT_EQ(stage.settled(), "");
}

TEST(PipelinedDispatcher, TwoProbeUntilOneSucceeds)
{
    Stage stage(stream());
    for (const std::int64_t id : {1, 2, 3, 4, 5})
        stage.add(id, "a");
    stage.work();
    stage.trouble({1, 2, 3, 4});
    stage.pass(1s);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {2}}));
    stage.pass(1h);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {2}}));
    stage.deliver({1});
    EXPECT_EQ(stage.dispatcher.troubles(), 0);
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}, {3}, {4}, {5}}));
}

TEST(PipelinedDispatcher, ASuccessEndsThePause)
{
    Stage stage(stream());
    stage.add_apart({1, 2, 3, 4, 5, 6});
    stage.trouble({1});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{2}, {3}, {4}}));
    stage.deliver({2});
    EXPECT_FALSE(stage.dispatcher.is_backing_off(stage.now));
    EXPECT_EQ(stage.on_the_way(), (Parcels{{3}, {4}, {5}, {6}}));
}

TEST(PipelinedDispatcher, PausesGrowUpToTheLimitAndNobodyIsRejected)
{
    Stage stage(stream());
    stage.add_apart({1, 2});
    stage.add(3, "of 2");
    for (const auto pause : {1s, 2s, 4s, 8s, 8s, 8s}) {
        stage.round(fails);
        EXPECT_EQ(stage.pause(), pause);
    }
    EXPECT_EQ(stage.dispatcher.troubles(), 6);
    for (int i = 0; i < 3; ++i)
        stage.round(works);
    EXPECT_EQ(stage.dispatcher.rejected(), 0u);
    EXPECT_EQ(stage.dispatcher.delivered(), 3u);
    stage.expect_empty();
}

TEST(PipelinedDispatcher, WhatWasSentBeforeTheTroubleCountsOnce)
{
    Stage stage(stream(16));
    for (const std::int64_t id : {1, 2, 3, 4, 5, 6})
        stage.add(id, "a");
    stage.work();
    stage.trouble({1, 2});
    const TimePoint resume_at = stage.dispatcher.resume_at();
    stage.pass(500ms);
    stage.trouble({3, 4});
    stage.pass(1s);
    stage.trouble({5});
    EXPECT_EQ(stage.dispatcher.troubles(), 1);
    EXPECT_EQ(stage.dispatcher.resume_at(), resume_at);
    stage.trouble({6});
    ASSERT_EQ(stage.on_the_way(), (Parcels{{1}, {2}}));
    stage.trouble({1, 2});
    EXPECT_EQ(stage.dispatcher.troubles(), 2);
}

TEST(PipelinedDispatcher, TroubleAtOnceStopsEverything)
{
    Stage stage(stream());
    stage.receiver.at_once = {{2, DeliveryStatus::trouble}};
    for (const std::int64_t id : {1, 2, 3})
        stage.add(id, "a");
    stage.add(4, "b");
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}}));
    EXPECT_EQ(stage.pause(), 1s);
    EXPECT_EQ(stage.dispatcher.on_the_way(), 1u);
    stage.receiver.at_once.clear();
    stage.deliver({1});
    EXPECT_EQ(stage.on_the_way(), (Parcels{{4}, {2}, {3}}));
    stage.deliver({4, 2, 3});
    EXPECT_EQ(stage.settled(), "1+ 4+ 2+ 3+");
    stage.expect_empty();
}

TEST(PipelinedDispatcher, ASinkThatIsNotReadyGetsNothing)
{
    Stage stage(stream());
    stage.receiver.is_ready = false;
    stage.add_apart({1, 2});
    EXPECT_EQ(stage.on_the_way(), Parcels{});
    EXPECT_FALSE(stage.dispatcher.is_backing_off(stage.now));
    stage.receiver.is_ready = true;
    stage.work();
    EXPECT_EQ(stage.on_the_way(), (Parcels{{1}, {2}}));
}

// ---- the end

TEST(PipelinedDispatcher, WhoIsGoneGetsNothingMore)
{
    Stage stage(stream());
    for (const std::int64_t id : {1, 2, 3, 4, 5})
        stage.add(id, "a");
    stage.work();
    stage.answer(2, DeliveryStatus::gone);
    stage.deliver({1});
    EXPECT_EQ(stage.dispatcher.gone(), "said of 2");
    EXPECT_EQ(stage.dispatcher.last_trouble(), "said of 2");
    stage.answer(3, DeliveryStatus::returned);
    stage.answer(4, DeliveryStatus::returned);
    stage.pass(1h);
    EXPECT_EQ(stage.on_the_way(), Parcels{});
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now));
    EXPECT_EQ(stage.settled(), "1+");
    EXPECT_EQ(stage.dispatcher.in_hand(), 4u);
}

TEST(PipelinedDispatcher, WhoFinishesSendsNothingMoreButListens)
{
    Stage stage(stream());
    for (const std::int64_t id : {1, 2, 3, 4, 5})
        stage.add(id, "a");
    stage.work();
    stage.dispatcher.finish();
    stage.deliver({2, 1});
    stage.answer(3, DeliveryStatus::returned);
    stage.deliver({4});
    stage.pass(1h);
    EXPECT_EQ(stage.on_the_way(), Parcels{});
    EXPECT_EQ(stage.settled(), "1+ 2+");
    EXPECT_EQ(stage.dispatcher.on_the_way(), 0u);
    EXPECT_EQ(stage.dispatcher.in_hand(), 3u);
}

TEST(PipelinedDispatcher, WhoAbandonsHasNothingInHand)
{
    Stage stage(stream());
    for (const std::int64_t id : {1, 2, 3})
        stage.add(id, "a");
    stage.add_apart({4, 5});
    stage.deliver({4});
    stage.answer(1, DeliveryStatus::returned);
    stage.deliver({2});
    stage.answer(3, DeliveryStatus::rejected); // comes too late
    stage.dispatcher.abandon();
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.dispatcher.next_work(), std::nullopt);
    stage.expect_empty();
    stage.pass(1h);
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.on_the_way(), Parcels{});
    stage.add(1, "a", 2);
    stage.add(2, "a", 2);
    stage.round(works);
    EXPECT_EQ(stage.settled(), "1+ 2+");
    stage.expect_empty();
}

// ---- how much, and when

TEST(PipelinedDispatcher, CountsWhatIsInHandUntilItIsSettled)
{
    Stage stage(stream());
    Event event;
    event.id = 1;
    event.aggregate_type = "order";
    event.aggregate_id = "a";
    event.payload = std::string(1000, 'x');
    const std::size_t size = event.size();
    stage.dispatcher.add(std::make_unique<Event>(event));
    EXPECT_EQ(stage.dispatcher.bytes(), size);
    stage.add(2, "a");
    const std::size_t both = stage.dispatcher.bytes();
    EXPECT_GT(both, size);
    stage.work();
    stage.deliver({2});
    EXPECT_EQ(stage.dispatcher.bytes(), both); // 2 has its turn after 1
    EXPECT_EQ(stage.dispatcher.in_hand(), 2u);
    stage.reject(1);
    EXPECT_EQ(stage.dispatcher.bytes(), both - size);
    EXPECT_EQ(stage.dispatcher.in_hand(), 1u);
    stage.dispatcher.resume_behind(stage.dispatcher.settled().at(0), Ids{2});
    stage.expect_empty();
}

TEST(PipelinedDispatcher, WantsAsMuchAsTheSinkTakes)
{
    Stage stage(stream(5'000));
    for (std::int64_t id = 1; stage.dispatcher.can_take_more(stage.now) && id < 10'000; ++id)
        stage.add(id, "a");
    EXPECT_EQ(stage.dispatcher.in_hand(), 5'000u);
    stage.work();
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now));
    stage.deliver({1});
    EXPECT_TRUE(stage.dispatcher.can_take_more(stage.now));
}

TEST(PipelinedDispatcher, WhileTheSinkComplainsWhatIsInHandIsEnough)
{
    Stage stage(stream());
    stage.add_apart({1});
    EXPECT_TRUE(stage.dispatcher.can_take_more(stage.now));
    stage.receiver.status_message = "nobody is there";
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now));
}

TEST(PipelinedDispatcher, InTroubleWhatIsInHandIsEnough)
{
    Stage stage(stream());
    stage.add_apart({1});
    stage.add_apart({2});
    stage.trouble({1});
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now)); // during the pause
    stage.pass(1s);
    EXPECT_FALSE(stage.dispatcher.is_backing_off(stage.now));
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now));
}

// Unless it may be to blame: then others have to show that the sink is well.
TEST(PipelinedDispatcher, OneThatIsAloneWithItsTroubleIsGivenCompany)
{
    Stage stage(stream());
    stage.add_apart({1});
    stage.trouble({1});
    stage.pass(1s);
    EXPECT_TRUE(stage.dispatcher.can_take_more(stage.now));
    stage.add_apart({2});
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now));
}

TEST(PipelinedDispatcher, WithNothingToSendThePauseIsNoReasonToWork)
{
    Stage stage(stream());
    stage.add_apart({1, 2});
    stage.trouble({1});
    stage.receiver.next_work = stage.now + 5s;
    EXPECT_EQ(stage.dispatcher.next_work(), stage.dispatcher.resume_at());
    stage.dispatcher.drop_batch(1);
    stage.deliver({2});
    stage.pass(1s);
    stage.expect_empty();
    EXPECT_EQ(stage.dispatcher.next_work(), stage.now + 4s);
}

TEST(PipelinedDispatcher, PassesOnWhatTheSinkHas)
{
    Stage stage(stream());
    EXPECT_EQ(stage.dispatcher.descriptor(), 42);
    EXPECT_EQ(stage.dispatcher.metadata(), std::vector<std::string>{"region"});
    stage.receiver.status_message = "nobody is there";
    EXPECT_EQ(stage.dispatcher.status_message(), "nobody is there");
    EXPECT_EQ(stage.dispatcher.take_log_lines(), std::vector<std::string>{"a remark"});
}

} // namespace
