#include "pipelined_stage.hpp"

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;

using Stage = PipelinedStage;

// ---- failures of the sink

TEST(PipelinedDispatcher, TwoEventsProbeAFailingSinkUntilOneIsDelivered)
{
    Stage stage;
    stage.add_together({1, 2, 3, 4, 5});
    stage.fail({1, 2, 3, 4});
    stage.advance_clock(1s);
    EXPECT_EQ(stage.in_flight(), (Requests{{1}, {2}}));
    stage.advance_clock(1h);
    EXPECT_EQ(stage.in_flight(), (Requests{{1}, {2}}));
    stage.deliver({1});
    EXPECT_EQ(stage.dispatcher.consecutive_failures(), 0);
    EXPECT_EQ(stage.in_flight(), (Requests{{2}, {3}, {4}, {5}}));
}

TEST(PipelinedDispatcher, PausesGrowUpToTheLimitAndNoEventIsRejected)
{
    Stage stage;
    stage.add_apart({1, 2});
    stage.add(3, "of 2");
    for (const auto pause : {1s, 2s, 4s, 8s, 8s, 8s}) {
        stage.round(fails);
        EXPECT_EQ(stage.pause(), pause);
    }
    EXPECT_EQ(stage.dispatcher.consecutive_failures(), 6);
    for (int i = 0; i < 3; ++i)
        stage.round(works);
    EXPECT_EQ(stage.dispatcher.rejected(), 0u);
    EXPECT_EQ(stage.dispatcher.delivered(), 3u);
    stage.expect_empty();
}

TEST(PipelinedDispatcher, RequestsSentBeforeAFailureCountAsOneFailure)
{
    Stage stage({.max_in_flight = 16});
    stage.add_together({1, 2, 3, 4, 5, 6});
    stage.fail({1, 2});
    const TimePoint resume_at = stage.dispatcher.resume_at();
    stage.advance_clock(500ms);
    stage.fail({3, 4});
    stage.advance_clock(1s);
    stage.fail({5});
    EXPECT_EQ(stage.dispatcher.consecutive_failures(), 1);
    EXPECT_EQ(stage.dispatcher.resume_at(), resume_at);
    stage.fail({6});
    ASSERT_EQ(stage.in_flight(), (Requests{{1}, {2}}));
    stage.fail({1, 2});
    EXPECT_EQ(stage.dispatcher.consecutive_failures(), 2);
}

TEST(PipelinedDispatcher, AnImmediateFailureStopsAllSending)
{
    Stage stage;
    stage.receiver.immediate = {{2, DeliveryStatus::unavailable}};
    for (const std::int64_t id : {1, 2, 3})
        stage.add(id, "a");
    stage.add(4, "b");
    stage.poll();
    EXPECT_EQ(stage.in_flight(), (Requests{{1}}));
    EXPECT_EQ(stage.pause(), 1s);
    EXPECT_EQ(stage.dispatcher.in_flight(), 1u);
    stage.receiver.immediate.clear();
    stage.deliver({1});
    EXPECT_EQ(stage.in_flight(), (Requests{{4}, {2}, {3}}));
    stage.deliver({4, 2, 3});
    EXPECT_EQ(stage.settled(), "1+ 4+ 2+ 3+");
    stage.expect_empty();
}

TEST(PipelinedDispatcher, ASinkThatCannotSendGetsNoEvent)
{
    Stage stage;
    stage.receiver.can_send = false;
    stage.add_apart({1, 2});
    EXPECT_EQ(stage.in_flight(), Requests{});
    EXPECT_FALSE(stage.dispatcher.is_backing_off(stage.now));
    stage.receiver.can_send = true;
    stage.poll();
    EXPECT_EQ(stage.in_flight(), (Requests{{1}, {2}}));
}

// ---- ending

TEST(PipelinedDispatcher, AfterEndpointGoneNoEventIsSent)
{
    Stage stage;
    stage.add_together({1, 2, 3, 4, 5});
    stage.answer(2, DeliveryStatus::endpoint_gone);
    stage.deliver({1});
    EXPECT_EQ(stage.dispatcher.endpoint_gone(), "said of 2");
    EXPECT_EQ(stage.dispatcher.last_error(), "said of 2");
    stage.answer(3, DeliveryStatus::not_sent);
    stage.answer(4, DeliveryStatus::not_sent);
    stage.advance_clock(1h);
    EXPECT_EQ(stage.in_flight(), Requests{});
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now));
    EXPECT_EQ(stage.settled(), "1+");
    EXPECT_EQ(stage.dispatcher.claimed(), 4u);
}

TEST(PipelinedDispatcher, AfterStopSendingResultsAreStillRead)
{
    Stage stage;
    stage.add_together({1, 2, 3, 4, 5});
    stage.dispatcher.stop_sending();
    stage.deliver({2, 1});
    stage.answer(3, DeliveryStatus::not_sent);
    stage.deliver({4});
    stage.advance_clock(1h);
    EXPECT_EQ(stage.in_flight(), Requests{});
    EXPECT_EQ(stage.settled(), "1+ 2+");
    EXPECT_EQ(stage.dispatcher.in_flight(), 0u);
    EXPECT_EQ(stage.dispatcher.claimed(), 3u);
}

TEST(PipelinedDispatcher, AfterCancelAllNoEventIsClaimed)
{
    Stage stage;
    for (const std::int64_t id : {1, 2, 3})
        stage.add(id, "a");
    stage.add_apart({4, 5});
    stage.deliver({4});
    stage.answer(1, DeliveryStatus::not_sent);
    stage.deliver({2});
    stage.answer(3, DeliveryStatus::rejected); // cancel_all() drops this result
    stage.dispatcher.cancel_all();
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.dispatcher.next_poll_at(), std::nullopt);
    stage.expect_empty();
    stage.advance_clock(1h);
    EXPECT_EQ(stage.settled(), "");
    EXPECT_EQ(stage.in_flight(), Requests{});
    stage.add(1, "a", 2);
    stage.add(2, "a", 2);
    stage.round(works);
    EXPECT_EQ(stage.settled(), "1+ 2+");
    stage.expect_empty();
}

// ---- claims and polling

TEST(PipelinedDispatcher, CountsClaimedEventsAndBytesUntilTheyAreSettled)
{
    Stage stage;
    Event event;
    event.id = 1;
    event.aggregate_type = "order";
    event.aggregate_id = "a";
    event.payload = std::string(1000, 'x');
    const std::size_t size = event.size();
    stage.dispatcher.add(std::make_unique<Event>(event));
    EXPECT_EQ(stage.dispatcher.claimed_bytes(), size);
    stage.add(2, "a");
    const std::size_t both = stage.dispatcher.claimed_bytes();
    EXPECT_GT(both, size);
    stage.poll();
    stage.deliver({2});
    EXPECT_EQ(stage.dispatcher.claimed_bytes(), both); // the result of 2 waits for that of 1
    EXPECT_EQ(stage.dispatcher.claimed(), 2u);
    stage.reject(1);
    EXPECT_EQ(stage.dispatcher.claimed_bytes(), both - size);
    EXPECT_EQ(stage.dispatcher.claimed(), 1u);
    stage.dispatcher.resume_behind(stage.dispatcher.settled().at(0), Ids{2});
    stage.expect_empty();
}

TEST(PipelinedDispatcher, ClaimsGoUpToTheLimitOfTheSink)
{
    Stage stage({.max_in_flight = 5'000});
    for (std::int64_t id = 1; stage.dispatcher.can_take_more(stage.now) && id < 10'000; ++id)
        stage.add(id, "a");
    EXPECT_EQ(stage.dispatcher.claimed(), 5'000u);
    stage.poll();
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now));
    stage.deliver({1});
    EXPECT_TRUE(stage.dispatcher.can_take_more(stage.now));
}

TEST(PipelinedDispatcher, NoEventIsClaimedWhileTheSinkHasAStatusMessage)
{
    Stage stage;
    stage.add_apart({1});
    EXPECT_TRUE(stage.dispatcher.can_take_more(stage.now));
    stage.receiver.status_message = "nobody is there";
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now));
}

TEST(PipelinedDispatcher, NoFurtherEventIsClaimedAfterAFailure)
{
    Stage stage;
    stage.add_apart({1});
    stage.add_apart({2});
    stage.fail({1});
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now)); // during the pause
    stage.advance_clock(1s);
    EXPECT_FALSE(stage.dispatcher.is_backing_off(stage.now));
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now));
}

// A single event may be poison. The delivery of another event shows whether the sink works.
TEST(PipelinedDispatcher, OneMoreEventIsClaimedAfterAFailureOfTheOnlyEvent)
{
    Stage stage;
    stage.add_apart({1});
    stage.fail({1});
    stage.advance_clock(1s);
    EXPECT_TRUE(stage.dispatcher.can_take_more(stage.now));
    stage.add_apart({2});
    EXPECT_FALSE(stage.dispatcher.can_take_more(stage.now));
}

TEST(PipelinedDispatcher, ThePauseCausesNoPollIfNoEventWaits)
{
    Stage stage;
    stage.add_apart({1, 2});
    stage.fail({1});
    stage.receiver.next_poll_at = stage.now + 5s;
    EXPECT_EQ(stage.dispatcher.next_poll_at(), stage.dispatcher.resume_at());
    stage.dispatcher.drop_batch(1);
    stage.deliver({2});
    stage.advance_clock(1s);
    stage.expect_empty();
    EXPECT_EQ(stage.dispatcher.next_poll_at(), stage.now + 4s);
}

TEST(PipelinedDispatcher, ReportsOfTheSinkArePassedOn)
{
    Stage stage;
    EXPECT_EQ(stage.dispatcher.wait_fd(), 42);
    EXPECT_EQ(stage.dispatcher.metadata_keys(), std::vector<std::string>{"region"});
    stage.receiver.status_message = "nobody is there";
    EXPECT_EQ(stage.dispatcher.status_message(), "nobody is there");
    EXPECT_EQ(stage.dispatcher.take_log_lines(), std::vector<std::string>{"a remark"});
}

} // namespace
