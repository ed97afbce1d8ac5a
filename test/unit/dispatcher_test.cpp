// Promises of both dispatchers.
#include "pipelined_stage.hpp"
#include "sink/dispatch/serial_dispatcher.hpp"

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;

template <typename SomeStage>
class BothDispatchers : public testing::Test {};

using Stages = testing::Types<test::Stage<SerialDispatcher>, PipelinedStage>;
TYPED_TEST_SUITE(BothDispatchers, Stages);

TYPED_TEST(BothDispatchers, ASettledEventHasItsTokenAndReason)
{
    TypeParam stage;
    stage.add(1, "a", 77);
    stage.add(2, "a", 78);
    stage.poll();
    stage.deliver({1});
    stage.reject(2);
    const auto& settled = stage.dispatcher.settled();
    ASSERT_EQ(settled.size(), 2u);
    EXPECT_EQ(settled[0].ref.token, 77);
    EXPECT_EQ(settled[0].reason, "");
    EXPECT_EQ(settled[1].ref.token, 78);
    EXPECT_EQ(settled[1].reason, "said of 2");
    EXPECT_EQ(settled[0].ordering_key, settled[1].ordering_key);
    EXPECT_EQ(stage.dispatcher.delivered(), 1u);
    EXPECT_EQ(stage.dispatcher.rejected(), 1u);
    stage.dispatcher.forget_settled(1);
    EXPECT_EQ(stage.settled(), "2-");
}

TYPED_TEST(BothDispatchers, NoEventIsSentUntilThePauseAfterAFailureEnds)
{
    TypeParam stage;
    stage.add_apart({1, 2, 3, 4, 5, 6});
    stage.fail({1, 2, 3, 4});
    EXPECT_EQ(stage.pause(), 1s);
    EXPECT_EQ(stage.dispatcher.last_error(), "said of 4");
    EXPECT_TRUE(stage.dispatcher.is_backing_off(stage.now));
    EXPECT_EQ(stage.dispatcher.next_poll_at(), stage.dispatcher.resume_at());
    stage.advance_clock(1s - 1ns);
    EXPECT_EQ(stage.in_flight(), Requests{});
    stage.advance_clock(1ns);
    EXPECT_FALSE(stage.dispatcher.is_backing_off(stage.now));
    EXPECT_EQ(stage.in_flight().size(), 2u);
    EXPECT_EQ(stage.settled(), "");
}

TYPED_TEST(BothDispatchers, ASuccessEndsThePause)
{
    TypeParam stage;
    stage.add_apart({1, 2, 3, 4, 5, 6});
    stage.fail({1});
    EXPECT_EQ(stage.in_flight(), (Requests{{2}, {3}, {4}}));
    stage.deliver({2});
    EXPECT_FALSE(stage.dispatcher.is_backing_off(stage.now));
    EXPECT_EQ(stage.in_flight(), (Requests{{3}, {4}, {5}, {6}}));
}

} // namespace
