// A Kafka sink with its dispatcher, in a thread of its own as in the relay.
#include "kafka_stage.hpp"

#include "sink/dispatch/dispatcher.hpp"
#include "sink/kafka/threaded_sink.hpp"

#include <algorithm>

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;

class Delivery {
public:
    explicit Delivery(KafkaConfig config)
    {
        auto sink = std::make_unique<ThreadedSink>(
            std::make_unique<KafkaSink>(std::move(config), Secrets::parse(""), SinkContext{}));
        dispatcher =
            make_dispatcher(std::move(sink), true, {10, 0, 20'000, 20'000, 0}, [] { return 0.0; });
    }

    // Polls until `count` events are settled. No event behind a rejected one is blocked.
    void settle(std::size_t count)
    {
        EXPECT_TRUE(comes_true([&] {
            dispatcher->poll(Clock::now());
            const std::vector<SettledEvent> settled = dispatcher->settled();
            dispatcher->forget_settled(settled.size());
            for (const SettledEvent& one : settled) {
                (one.delivered ? delivered : rejected).push_back(one.ref.id);
                if (!one.delivered)
                    dispatcher->resume_behind(one, {});
            }
            return delivered.size() + rejected.size() >= count;
        }));
    }

    std::unique_ptr<Dispatcher> dispatcher;
    std::vector<std::int64_t> delivered;
    std::vector<std::int64_t> rejected;
};

TEST(KafkaSink, WithADispatcherOnePoisonEventIsRejectedAndTheOthersArriveInOrder)
{
    Cluster cluster;
    Delivery delivery(config_for(cluster, R"("linger.ms": 10)"));
    const auto bad = RD_KAFKA_RESP_ERR_INVALID_RECORD;
    const auto behind = RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
    const auto good = RD_KAFKA_RESP_ERR_NO_ERROR;
    // Answers in the order of the requests: event 0 alone; the whole batch of the others; then
    // single events, of which the fourth is rejected while up to four behind it are in flight.
    cluster.answer_with({good, bad, good, good, good, bad, behind, behind, behind, behind});
    for (std::int64_t id = 0; id <= 9; ++id)
        delivery.dispatcher->add(std::make_unique<Event>(make_event(id)));
    delivery.settle(10);
    EXPECT_EQ(delivery.rejected, (std::vector<std::int64_t>{4}));
    EXPECT_EQ(delivery.delivered, (std::vector<std::int64_t>{0, 1, 2, 3, 5, 6, 7, 8, 9}));
    EXPECT_EQ(cluster.read_values(),
              (std::vector<std::string>{"0", "1", "2", "3", "5", "6", "7", "8", "9"}));
    EXPECT_EQ(delivery.dispatcher->claimed(), 0u);
    EXPECT_EQ(delivery.dispatcher->claimed_bytes(), 0u);
}

TEST(KafkaSink, WithADispatcherNoEventOvertakesOneThatCannotBeSent)
{
    Cluster cluster;
    Delivery delivery(config_for(cluster, R"("message.max.bytes": 2000)"));
    // The first event is delivered alone; after it, many are sent at once.
    delivery.dispatcher->add(std::make_unique<Event>(make_event(0)));
    delivery.settle(1);
    for (std::int64_t id = 1; id <= 9; ++id) {
        Event event = make_event(id);
        if (id == 4)
            event.payload = std::string(2000, 'x');
        delivery.dispatcher->add(std::make_unique<Event>(std::move(event)));
    }
    delivery.settle(10);
    EXPECT_EQ(delivery.rejected, (std::vector<std::int64_t>{4}));
    EXPECT_EQ(delivery.delivered, (std::vector<std::int64_t>{0, 1, 2, 3, 5, 6, 7, 8, 9}));
    // No value occurs twice, because the events behind the rejected one had not been sent.
    EXPECT_EQ(cluster.read_values(),
              (std::vector<std::string>{"0", "1", "2", "3", "5", "6", "7", "8", "9"}));
}

TEST(KafkaSink, WithADispatcherEveryEventArrivesInOrderDespiteFailuresOfAllKinds)
{
    Cluster cluster;
    Delivery delivery(config_for(cluster, in_small_steps));
    cluster.answer_with(
        {RD_KAFKA_RESP_ERR_NO_ERROR, RD_KAFKA_RESP_ERR__TRANSPORT, RD_KAFKA_RESP_ERR_NO_ERROR,
         RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
         RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, RD_KAFKA_RESP_ERR_NO_ERROR,
         RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED});
    for (std::int64_t id = 1; id <= 500; ++id)
        delivery.dispatcher->add(std::make_unique<Event>(make_event(id)));
    delivery.settle(500);
    EXPECT_EQ(delivery.rejected.size(), 0u);
    EXPECT_TRUE(std::ranges::is_sorted(delivery.delivered));
    EXPECT_EQ(delivery.dispatcher->claimed(), 0u);
    // Of a value that was stored several times, the last position counts.
    const std::vector<std::string> values = cluster.read_values();
    std::map<std::string, std::size_t> last;
    for (std::size_t i = 0; i < values.size(); ++i)
        last[values[i]] = i;
    EXPECT_EQ(last.size(), 500u);
    for (int i = 1; i < 500; ++i)
        EXPECT_LT(last[std::to_string(i)], last[std::to_string(i + 1)]);
}

} // namespace
