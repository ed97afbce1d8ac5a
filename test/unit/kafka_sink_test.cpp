#include "sink/kafka/kafka_sink.hpp"

#include "kafka_stage.hpp"

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;

using Statuses = std::vector<DeliveryStatus>;

// ---- records

TEST(KafkaSink, AResultNamesTopicPartitionAndOffset)
{
    const Cluster cluster;
    KafkaSender sender(config_for(cluster));
    const DeliveryResult result = sender.try_one(make_event(7));
    EXPECT_EQ(result.request_id, 7u);
    EXPECT_EQ(result.status, DeliveryStatus::delivered);
    EXPECT_EQ(result.reason, "topic t, partition 0, offset 0");
    const std::vector<Stored> stored = cluster.read();
    ASSERT_EQ(stored.size(), 1u);
    EXPECT_EQ(stored[0].key, "a");
    EXPECT_EQ(stored[0].value, "7");
    EXPECT_EQ(stored[0].headers.at("ce_id"), make_event(7).tracking_id);
    EXPECT_EQ(stored[0].headers.at("ce_source"), "/test");
    EXPECT_EQ(stored[0].headers.at("content-type"), "application/json");
    EXPECT_GT(stored[0].timestamp_ms, 1'700'000'000'000);
}

TEST(KafkaSink, TheDebeziumFormatStoresOneHeaderAndTheTimeOfTheEvent)
{
    Cluster cluster;
    cluster.make_topic("outbox.event.order", 1);
    KafkaConfig config = config_for(cluster, R"("format": "debezium")");
    config.topic = TopicTemplate::parse("outbox.event.{aggregate_type}");
    KafkaSender sender(config);
    Event event = make_event(1);
    event.occurred_at = 1'767'323'045'123'456;
    EXPECT_EQ(sender.try_one(event).status, DeliveryStatus::delivered);
    const std::vector<Stored> stored = cluster.read("outbox.event.order");
    ASSERT_EQ(stored.size(), 1u);
    EXPECT_EQ(stored[0].headers, (std::map<std::string, std::string>{{"id", event.tracking_id}}));
    EXPECT_EQ(stored[0].timestamp_ms, 1'767'323'045'123);
}

TEST(KafkaSink, ATombstoneAndTextAreStoredUnchanged)
{
    const Cluster cluster;
    KafkaSender sender(config_for(cluster));
    Event event = make_event(1, "Größe 😀");
    event.payload = "null";
    sender.send(event);
    event.id = 2;
    event.payload = R"({"ü": "\u0041"})";
    sender.send(event);
    EXPECT_EQ(sender.statuses(2), (Statuses{DeliveryStatus::delivered, DeliveryStatus::delivered}));
    const std::vector<Stored> stored = cluster.read();
    ASSERT_EQ(stored.size(), 2u);
    EXPECT_EQ(stored[0].key, "Größe 😀");
    EXPECT_EQ(stored[0].value, std::nullopt);
    EXPECT_EQ(stored[1].value, R"({"ü": "\u0041"})");
}

TEST(KafkaSink, TheTopicTemplateIsFilledFromTheEvent)
{
    Cluster cluster;
    cluster.make_topic("shop.order", 1);
    cluster.make_topic("shop.customer", 1);
    KafkaConfig config = config_for(cluster);
    config.topic = TopicTemplate::parse("shop.{aggregate_type}");
    KafkaSender sender(config);
    sender.send(make_event(1));
    Event other = make_event(2);
    other.aggregate_type = "customer";
    sender.send(other);
    EXPECT_EQ(sender.statuses(2), (Statuses{DeliveryStatus::delivered, DeliveryStatus::delivered}));
    EXPECT_EQ(cluster.read_values("shop.order"), (std::vector<std::string>{"1"}));
    EXPECT_EQ(cluster.read_values("shop.customer"), (std::vector<std::string>{"2"}));
}

// Expected values: Utils.murmur2 of Kafka's Java client for these keys, modulo 4.
TEST(KafkaSink, KeysHaveThePartitionsOfJavaClients)
{
    Cluster cluster;
    cluster.make_topic("wide", 4);
    KafkaConfig config = config_for(cluster);
    config.topic = TopicTemplate::parse("wide");
    KafkaSender sender(config);
    const std::map<std::string, int> partitions = {{"kafka", 0}, {"1234", 0}, {"4", 1}, {"34", 2}};
    std::int64_t id = 0;
    for (const auto& [key, partition] : partitions)
        sender.send(make_event(++id, key));
    sender.wait_for(partitions.size());
    std::map<std::string, int> found;
    for (const Stored& stored : cluster.read("wide", 4))
        found[stored.key] = stored.partition;
    EXPECT_EQ(found, partitions);
}

TEST(KafkaSink, EventsAreStoredInTheOrderOfSending)
{
    const Cluster cluster(3);
    KafkaSender sender(config_for(cluster, R"("batch.num.messages": 7)"));
    EXPECT_TRUE(sender.sink.preserves_order());
    EXPECT_EQ(sender.sink.max_events_per_request(), 1u);
    sender.send_all(1, 500);
    EXPECT_EQ(sender.statuses(500), Statuses(500, DeliveryStatus::delivered));
    EXPECT_EQ(cluster.read_values(), numbers(1, 500));
    EXPECT_EQ(sender.sink.next_poll_at(), std::nullopt);
}

TEST(KafkaSink, LimitsAndMetadataFollowTheConfig)
{
    const KafkaSender sender(
        config_for("127.0.0.1:1", R"("queue.buffering.max.messages": 77, "metadata": ["region"])"));
    EXPECT_EQ(sender.sink.max_in_flight(), 77u);
    EXPECT_EQ(sender.sink.metadata_keys(), std::vector<std::string>{"region"});
}

TEST(KafkaSink, RecordsBeyondTheLimitAreUnavailable)
{
    KafkaSender sender(config_for("127.0.0.1:1", R"("queue.buffering.max.messages": 20)"));
    sender.send_all(1, 20);
    const auto result = sender.send(make_event(21));
    ASSERT_TRUE(result);
    EXPECT_EQ(result->status, DeliveryStatus::unavailable);
}

TEST(KafkaSink, TheWaitFdIsReadableWhenThereIsAResult)
{
    const Cluster cluster;
    KafkaSender sender(config_for(cluster));
    const auto is_readable = [&](std::chrono::milliseconds wait) {
        pollfd fd = {sender.sink.wait_fd(), POLLIN, 0};
        return poll(&fd, 1, static_cast<int>(wait.count())) > 0;
    };
    EXPECT_EQ(sender.try_one(make_event(1)).status, DeliveryStatus::delivered);
    std::vector<DeliveryResult> results;
    sender.sink.poll(results);
    EXPECT_FALSE(is_readable(20ms));
    for (std::int64_t id = 2; id <= 4; ++id) {
        sender.send(make_event(id));
        EXPECT_TRUE(is_readable(max_test_wait));
        EXPECT_EQ(sender.wait_for(1).at(0).request_id, static_cast<RequestId>(id));
        EXPECT_FALSE(is_readable(5ms));
    }
}

// ---- rejected records

TEST(KafkaSink, AnEventWithAnInvalidTopicIsRejectedAtOnce)
{
    const Cluster cluster;
    KafkaConfig config = config_for(cluster);
    config.topic = TopicTemplate::parse("{aggregate_type}");
    KafkaSender sender(config);
    Event event = make_event(1);
    for (const std::string& type : {std::string("a b"), std::string(), std::string(250, 'x')}) {
        event.aggregate_type = type;
        const auto result = sender.send(event);
        ASSERT_TRUE(result) << type;
        EXPECT_EQ(result->status, DeliveryStatus::rejected);
        EXPECT_EQ(result->reason, problem_with_topic(type));
    }
    EXPECT_EQ(sender.sink.next_poll_at(), std::nullopt);
}

TEST(KafkaSink, AnEventLargerThanMessageMaxBytesIsRejectedAtOnce)
{
    const Cluster cluster;
    KafkaSender sender(config_for(cluster, R"("message.max.bytes": 2000)"));
    Event large = make_event(2);
    large.payload = std::string(2000, 'x');
    sender.send(make_event(1));
    const auto result = sender.send(large);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->request_id, 2u);
    EXPECT_EQ(result->status, DeliveryStatus::rejected);
    EXPECT_NE(result->reason.find("too large"), std::string::npos) << result->reason;
    sender.send(make_event(3));
    EXPECT_EQ(sender.statuses(2), (Statuses{DeliveryStatus::delivered, DeliveryStatus::delivered}));
    EXPECT_EQ(cluster.read_values(), (std::vector<std::string>{"1", "3"}));
}

TEST(KafkaSink, ABatchThatIsTooLargeIsSentAgainInSmallerBatches)
{
    Cluster cluster;
    KafkaSender sender(config_for(cluster, R"("linger.ms": 30, "batch.size": 8000)"));
    cluster.answer_with({RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE});
    sender.send_all(1, 10);
    EXPECT_EQ(sender.statuses(10), Statuses(10, DeliveryStatus::not_sent));
    sender.wait_until_ready();
    for (int i = 0; i < 2; ++i) {
        const std::size_t requests = cluster.count_requests([&] {
            sender.send_all(1, 10);
            EXPECT_EQ(sender.statuses(10), Statuses(10, DeliveryStatus::delivered));
        });
        EXPECT_GT(requests, 1u);
        EXPECT_LT(requests, 10u);
    }
}

TEST(KafkaSink, ARecordThatIsTooLargeByItselfIsRejected)
{
    Cluster cluster;
    KafkaSender sender(config_for(cluster));
    int returned = 0;
    for (int i = 0; i < 20; ++i) {
        cluster.answer_with({RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE});
        const DeliveryResult result = sender.try_one(make_event(1));
        sender.wait_until_ready();
        if (result.status == DeliveryStatus::rejected) {
            EXPECT_NE(result.reason.find("large"), std::string::npos) << result.reason;
            break;
        }
        EXPECT_EQ(result.status, DeliveryStatus::not_sent);
        ++returned;
    }
    EXPECT_GE(returned, 1);
    EXPECT_LE(returned, 8);
    EXPECT_EQ(sender.try_one(make_event(2)).status, DeliveryStatus::delivered);
    EXPECT_EQ(cluster.read_values(), (std::vector<std::string>{"2"}));
}

// A broker gives one error for a whole batch.
TEST(KafkaSink, ThePoisonRecordOfARefusedBatchIsFoundBySendingEachAlone)
{
    Cluster cluster;
    KafkaSender sender(config_for(cluster, R"("linger.ms": 30)"));
    cluster.answer_with({RD_KAFKA_RESP_ERR_INVALID_RECORD});
    sender.send_all(1, 5);
    EXPECT_EQ(sender.statuses(5), Statuses(5, DeliveryStatus::not_sent));
    sender.wait_until_ready();

    // All five are in flight when the third one is refused. A broker refuses the records behind
    // the gap with this error, after which librdkafka sends them again.
    const auto behind = RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
    cluster.answer_with({RD_KAFKA_RESP_ERR_NO_ERROR, RD_KAFKA_RESP_ERR_NO_ERROR}, 20ms);
    cluster.answer_with({RD_KAFKA_RESP_ERR_INVALID_RECORD, behind, behind});
    const TimePoint begin = Clock::now();
    sender.send_all(1, 5);
    EXPECT_EQ(sender.statuses(5), (Statuses{DeliveryStatus::delivered, DeliveryStatus::delivered,
                                            DeliveryStatus::rejected, DeliveryStatus::not_sent,
                                            DeliveryStatus::not_sent}));
    EXPECT_LT(Clock::now() - begin, 2s);
    sender.wait_until_ready();

    const std::size_t requests = cluster.count_requests([&] {
        sender.send_all(4, 5);
        EXPECT_EQ(sender.statuses(2), Statuses(2, DeliveryStatus::delivered));
    });
    EXPECT_EQ(requests, 1u); // both records in one request
    EXPECT_EQ(cluster.read_values(), (std::vector<std::string>{"1", "2", "4", "5"}));
}

TEST(KafkaSink, WithoutAPoisonRecordTheBatchSizeIsRestored)
{
    Cluster cluster;
    KafkaSender sender(config_for(cluster, R"("linger.ms": 30)"));
    cluster.answer_with({RD_KAFKA_RESP_ERR_INVALID_RECORD});
    sender.send_all(1, 5);
    EXPECT_EQ(sender.statuses(5), Statuses(5, DeliveryStatus::not_sent));
    sender.wait_until_ready();
    const auto send_all = [&] {
        sender.send_all(1, 5);
        EXPECT_EQ(sender.statuses(5), Statuses(5, DeliveryStatus::delivered));
    };
    EXPECT_EQ(cluster.count_requests(send_all), 5u);
    EXPECT_EQ(cluster.count_requests(send_all), 1u);
}

} // namespace
