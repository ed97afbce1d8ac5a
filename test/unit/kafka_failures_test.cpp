#include "kafka_stage.hpp"

#include "core/error.hpp"
#include "sink/kafka/producer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;
namespace fs = std::filesystem;

using Statuses = std::vector<DeliveryStatus>;

// An address whose port refuses connections.
constexpr const char* nowhere = "127.0.0.1:1";

std::set<std::string> names_in(const char* directory)
{
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory))
        names.insert(entry.path().filename());
    return names;
}

std::size_t count_in(const char* directory)
{
    return names_in(directory).size();
}

// ---- unavailable brokers

TEST(KafkaSink, UnreachableBrokersGiveAStatusMessageAndThenATimeout)
{
    Cluster cluster;
    cluster.go_down();
    KafkaConfig config = config_for(cluster);
    config.timeout_ms = 400;
    KafkaSender sender(config);
    const TimePoint begin = Clock::now();
    EXPECT_EQ(sender.sink.status_message(), "");
    sender.send_all(1, 3);
    std::vector<DeliveryResult> results;
    EXPECT_TRUE(comes_true(
        [&] {
            sender.sink.poll(results);
            return !sender.sink.status_message().empty();
        },
        300ms));
    EXPECT_TRUE(results.empty());
    const std::string status_message = sender.sink.status_message();
    results = sender.wait_for(3);
    EXPECT_GE(Clock::now() - begin, 400ms);
    EXPECT_LT(Clock::now() - begin, 1s);
    for (const DeliveryResult& result : results) {
        EXPECT_EQ(result.status, DeliveryStatus::unavailable);
        EXPECT_NE(result.reason, "");
    }
    EXPECT_EQ(sender.sink.status_message(), "");
    EXPECT_EQ(sender.sink.next_poll_at(), std::nullopt);

    // librdkafka notices the broker after a while, which may be longer than one timeout.
    cluster.come_up();
    ASSERT_TRUE(comes_true(
        [&] { return sender.try_one(make_event(1)).status == DeliveryStatus::delivered; }));
    EXPECT_EQ(cluster.read_values().front(), "1");
}

TEST(KafkaSink, AfterADeliveryEventsWaitForTheBrokersToComeBack)
{
    Cluster cluster;
    KafkaSender sender(config_for(cluster));
    EXPECT_EQ(sender.try_one(make_event(1)).status, DeliveryStatus::delivered);
    cluster.go_down();
    sender.send_all(2, 4);
    std::vector<DeliveryResult> results;
    EXPECT_TRUE(comes_true([&] {
        sender.sink.poll(results);
        return !sender.sink.status_message().empty();
    }));
    EXPECT_GT(sender.sink.next_poll_at().value_or(Clock::now()), Clock::now() + 20s);
    cluster.come_up();
    EXPECT_TRUE(results.empty());
    EXPECT_EQ(sender.statuses(3), Statuses(3, DeliveryStatus::delivered));
    EXPECT_EQ(cluster.read_values(), numbers(1, 4));
    sender.send(make_event(5));
    EXPECT_EQ(sender.sink.status_message(), "");
}

TEST(KafkaSink, BeforeTheFirstDeliveryTheTimeoutIsShorter)
{
    KafkaSender sender(config_for(nowhere));
    sender.send(make_event(1));
    EXPECT_GT(sender.sink.next_poll_at().value_or(Clock::now()), Clock::now() + 20s);
    std::vector<DeliveryResult> results;
    EXPECT_TRUE(comes_true([&] {
        sender.sink.poll(results);
        return !sender.sink.status_message().empty();
    }));
    EXPECT_LT(sender.sink.next_poll_at().value_or(Clock::now() + 1h), Clock::now() + 6s);
}

// A new session waits longer than the one before, which timed out before its first delivery.
TEST(KafkaSink, BrokersSlowerThanTheTimeoutGetTheEventsInTheEnd)
{
    Cluster cluster;
    cluster.be_slow(150ms);
    KafkaConfig config = config_for(cluster);
    config.timeout_ms = 200;
    KafkaSender sender(config);
    EXPECT_EQ(sender.try_one(make_event(1)).status, DeliveryStatus::unavailable);
    ASSERT_TRUE(comes_true(
        [&] { return sender.try_one(make_event(1)).status == DeliveryStatus::delivered; }));

    // After a delivery the configured timeout applies again.
    cluster.be_slow(10s);
    const TimePoint begin = Clock::now();
    EXPECT_EQ(sender.try_one(make_event(2)).status, DeliveryStatus::unavailable);
    EXPECT_LT(Clock::now() - begin, 1s);
}

TEST(KafkaSink, BrokersThatDoNotAnswerTimeOut)
{
    Cluster cluster;
    KafkaSender sender(config_for(cluster, R"("timeout": 1)"));
    // librdkafka 2.14 may take longer to connect.
    ASSERT_TRUE(comes_true(
        [&] { return sender.try_one(make_event(1)).status == DeliveryStatus::delivered; }));
    cluster.be_slow(10s);
    const DeliveryResult result = sender.try_one(make_event(2));
    EXPECT_EQ(result.status, DeliveryStatus::unavailable);
    EXPECT_EQ(result.reason, "no sign from the brokers within 1 s");
}

TEST(KafkaSink, ARetriableErrorNeitherFailsNorChangesTheOrder)
{
    for (const auto error :
         {RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
          RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, RD_KAFKA_RESP_ERR__TRANSPORT}) {
        SCOPED_TRACE(rd_kafka_err2name(error));
        Cluster cluster;
        KafkaSender sender(config_for(cluster, in_small_steps));
        cluster.answer_with({RD_KAFKA_RESP_ERR_NO_ERROR, error});
        sender.send_all(1, 40);
        EXPECT_EQ(sender.statuses(40), Statuses(40, DeliveryStatus::delivered));
        EXPECT_EQ(cluster.read_values(), numbers(1, 40));
    }
}

TEST(KafkaSink, APermanentErrorIsUnavailable)
{
    for (const auto error : {RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
                             RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED,
                             RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE}) {
        SCOPED_TRACE(rd_kafka_err2name(error));
        Cluster cluster;
        KafkaSender sender(config_for(cluster, R"("linger.ms": 20)"));
        EXPECT_EQ(sender.try_one(make_event(1)).status, DeliveryStatus::delivered);
        cluster.answer_with({error});
        sender.send_all(2, 5);
        for (const DeliveryResult& result : sender.wait_for(4)) {
            EXPECT_EQ(result.status, DeliveryStatus::unavailable);
            EXPECT_EQ(result.reason, rd_kafka_err2str(error));
        }
        sender.wait_until_ready();
        sender.send_all(2, 5);
        EXPECT_EQ(sender.statuses(4), Statuses(4, DeliveryStatus::delivered));
        EXPECT_EQ(cluster.read_values(), numbers(1, 5));
    }
}

// A refused record ends the session; results of records that the brokers already have are still
// reported.
TEST(KafkaSink, BehindARefusedRecordNothingIsSent)
{
    Cluster cluster;
    KafkaSender sender(config_for(cluster));
    cluster.answer_with({RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED});
    sender.send(make_event(1));
    std::optional<DeliveryResult> second;
    EXPECT_TRUE(comes_true([&] {
        second = sender.send(make_event(2));
        return second && second->status == DeliveryStatus::unavailable;
    }));
    EXPECT_FALSE(sender.sink.can_send());
    ASSERT_TRUE(sender.sink.next_poll_at());
    EXPECT_LT(*sender.sink.next_poll_at(), Clock::now() + 1s);
}

TEST(KafkaSink, AMissingTopicIsUnavailable)
{
    Cluster cluster;
    cluster.set_topic_error("t", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    KafkaSender sender(config_for(cluster, R"("topic.metadata.propagation.max.ms": 100,
                                              "topic.metadata.refresh.fast.interval.ms": 20)"));
    const StreamId stream = sender.sink.stream_of(make_event(1));
    const DeliveryResult result = sender.try_one(make_event(1));
    EXPECT_EQ(result.status, DeliveryStatus::unavailable);
    EXPECT_NE(result.reason.find("nknown topic"), std::string::npos) << result.reason;
    // A new session begins, so events that were assigned to the stream of the failed one are
    // returned.
    EXPECT_NE(sender.sink.stream_of(make_event(2)), stream);
    cluster.set_topic_error("t", RD_KAFKA_RESP_ERR_NO_ERROR);
    EXPECT_TRUE(comes_true(
        [&] { return sender.try_one(make_event(2)).status == DeliveryStatus::delivered; }));
}

// ---- sessions

TEST(KafkaSink, CancelledRecordsHaveNoResult)
{
    const Cluster cluster;
    KafkaSender sender(config_for(cluster, R"("linger.ms": 20)"));
    sender.send_all(1, 10);
    sender.sink.cancel_all();
    EXPECT_EQ(sender.sink.next_poll_at(), std::nullopt);
    EXPECT_EQ(sender.sink.status_message(), "");
    std::vector<DeliveryResult> results;
    sender.sink.poll(results);
    sender.sink.cancel_all();
    sender.send_all(11, 13);
    for (const DeliveryResult& result : sender.wait_for(3)) {
        EXPECT_GT(result.request_id, 10u);
        EXPECT_EQ(result.status, DeliveryStatus::delivered);
    }
    EXPECT_TRUE(results.empty());
}

TEST(KafkaSink, DestructionDoesNotWaitForTheEndOfASession)
{
    Cluster cluster;
    for (const std::string& servers :
         {cluster.servers(), std::string(nowhere), std::string("does-not-exist.invalid:9092")}) {
        auto sender = std::make_unique<KafkaSender>(config_for(servers));
        sender->send_all(1, 1000);
        cluster.go_down();
        const TimePoint begin = Clock::now();
        sender.reset();
        EXPECT_LT(Clock::now() - begin, 100ms) << servers;
    }
}

TEST(KafkaSink, SessionsLeaveNothingBehind)
{
    ASSERT_TRUE(comes_true([] { return !has_kafka_threads(); }));
    const Cluster cluster;
    // The threads of the mock cluster start one after the other; this session waits for them.
    KafkaSender(config_for(cluster)).try_one(make_event(1));
    ASSERT_TRUE(comes_true([] { return !has_kafka_threads(); }));
    std::this_thread::sleep_for(20ms);
    const std::size_t descriptors = count_in("/proc/self/fd");
    const std::size_t threads = count_in("/proc/self/task");
    {
        KafkaSender sender(config_for(cluster));
        for (std::int64_t id = 1; id <= 50; ++id) {
            sender.send(make_event(id));
            if (id % 10 == 0)
                sender.wait_for(1);
            sender.sink.cancel_all();
        }
        EXPECT_EQ(sender.try_one(make_event(51)).status, DeliveryStatus::delivered);
        EXPECT_TRUE(has_kafka_threads());
    }
    EXPECT_TRUE(comes_true([] { return !has_kafka_threads(); }));
    // The mock brokers live in this process and may keep a connection for a while.
    EXPECT_TRUE(comes_true([&] { return count_in("/proc/self/fd") < descriptors + 10; }))
        << count_in("/proc/self/fd") << " instead of " << descriptors;
    EXPECT_TRUE(comes_true([&] { return count_in("/proc/self/task") <= threads; }))
        << count_in("/proc/self/task") << " instead of " << threads;
}

// Signal handlers of the server must run in the server's main thread.
TEST(KafkaSink, ItsThreadsBlockAllSignals)
{
    ASSERT_TRUE(comes_true([] { return !has_kafka_threads(); }));
    const Cluster cluster;
    std::this_thread::sleep_for(20ms);
    const std::set<std::string> before = names_in("/proc/self/task");
    KafkaSender sender(config_for(cluster));
    EXPECT_EQ(sender.try_one(make_event(1)).status, DeliveryStatus::delivered);
    int checked = 0;
    for (const std::string& task : names_in("/proc/self/task")) {
        if (before.contains(task))
            continue;
        std::ifstream status("/proc/self/task/" + task + "/status");
        for (std::string line; std::getline(status, line);) {
            if (!line.starts_with("SigBlk:"))
                continue;
            const auto blocked = std::stoull(line.substr(7), nullptr, 16);
            for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGQUIT, SIGALRM})
                EXPECT_TRUE(blocked >> (signal - 1) & 1) << signal;
            ++checked;
        }
    }
    EXPECT_GE(checked, 2);
    sigset_t mine;
    pthread_sigmask(SIG_SETMASK, nullptr, &mine);
    EXPECT_EQ(sigismember(&mine, SIGTERM), 0);
}

TEST(KafkaSink, AFailureToOpenASessionIsUnavailable)
{
    char directory[] = "/tmp/outbox_kafka_XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    KafkaConfig config =
        config_for(nowhere, R"("security.protocol": "ssl", "ssl.ca.location": "${secret:ca}")");
    const std::string secrets = "ca = " + std::string(directory) + "\n";
    KafkaSender sender(resolve(config, Secrets::parse(secrets)), secrets);
    sender.send(make_event(1));
    sender.sink.cancel_all();
    rmdir(directory);
    ASSERT_TRUE(comes_true([] { return !has_kafka_threads(); }));
    const std::size_t descriptors = count_in("/proc/self/fd");
    for (std::int64_t id = 2; id <= 3; ++id) {
        const auto result = sender.send(make_event(id));
        ASSERT_TRUE(result);
        EXPECT_EQ(result->status, DeliveryStatus::unavailable);
        EXPECT_NE(result->reason.find("ssl.ca.location"), std::string::npos) << result->reason;
        EXPECT_EQ(result->reason.find(directory), std::string::npos) << result->reason;
    }
    EXPECT_TRUE(sender.sink.can_send());
    EXPECT_EQ(sender.sink.next_poll_at(), std::nullopt);
    EXPECT_EQ(count_in("/proc/self/fd"), descriptors);
    ASSERT_EQ(mkdir(directory, 0700), 0);
    EXPECT_FALSE(sender.send(make_event(4)));
    rmdir(directory);
}

// Opening a named pipe for reading waits for a writer.
TEST(KafkaSink, APipeIsRefusedAsACertificateFile)
{
    char directory[] = "/tmp/outbox_kafka_XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    const std::string pipe = std::string(directory) + "/pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    std::atomic<bool> is_over = false;
    std::thread rescuer([&] {
        EXPECT_TRUE(comes_true([&] { return is_over.load(); })) << "opening the pipe blocks";
        for (; !is_over; std::this_thread::sleep_for(10ms))
            close(open(pipe.c_str(), O_WRONLY | O_NONBLOCK));
    });
    for (const char* key : {"ssl.ca.location", "ssl.certificate.location", "ssl.keystore.location"})
        try {
            const KafkaSender sender(
                config_for(nowhere, std::string(R"("security.protocol": "ssl", ")") + key +
                                        "\": \"" + pipe + "\""));
            ADD_FAILURE() << key;
        } catch (const outbox::Error& error) {
            EXPECT_STREQ(error.sqlstate(), "22023");
            EXPECT_NE(std::string(error.what()).find("must be the path of a file"),
                      std::string::npos)
                << error.what();
        }
    is_over = true;
    rescuer.join();
    std::filesystem::remove_all(directory);
}

// ---- messages of the sink

TEST(KafkaSink, AnErrorAboutIncompatibleSettingsHasNoSecrets)
{
    for (const std::string& password : {std::string("hunter2"), std::string(1000, 'h')}) {
        KafkaConfig config = config_for(nowhere, R"("compression.type": "${secret:pw}")");
        const std::string secrets = "pw = " + password + "\n";
        try {
            const KafkaSender sender(resolve(config, Secrets::parse(secrets)), secrets);
            ADD_FAILURE();
        } catch (const outbox::Error& error) {
            EXPECT_STREQ(error.sqlstate(), "22023");
            EXPECT_NE(std::string(error.what()).find("\"***\""), std::string::npos) << error.what();
            EXPECT_EQ(std::string(error.what()).find(password.substr(0, 7)), std::string::npos);
        }
    }
    EXPECT_THROW(KafkaSender(config_for(nowhere, R"("max.in.flight": 100)")), outbox::Error);
}

TEST(KafkaSink, LogLinesOfLibrdkafkaAreReported)
{
    KafkaSender sender(config_for(nowhere, R"("debug": "all", "client.id": "${secret:name}")"),
                       "name = hunter2\n");
    sender.send(make_event(1));
    std::vector<DeliveryResult> results;
    EXPECT_TRUE(comes_true([&] {
        sender.sink.poll(results);
        return !sender.sink.status_message().empty();
    }));
    const std::vector<std::string> log_lines = sender.sink.take_log_lines();
    EXPECT_EQ(log_lines.size(), 20u); // the limit: librdkafka logged more
    for (const std::string& line : log_lines)
        EXPECT_EQ(line.find("gapless"), std::string::npos) << line;
    EXPECT_TRUE(sender.sink.take_log_lines().empty());
}

TEST(KafkaSink, ADeliveryWithoutFailuresLogsNothing)
{
    const Cluster cluster;
    KafkaSender sender(config_for(cluster));
    EXPECT_EQ(sender.try_one(make_event(1)).status, DeliveryStatus::delivered);
    EXPECT_EQ(sender.sink.take_log_lines(), std::vector<std::string>{});
}

// Sessions that are still ending would be reported as leaks.
class WaitsForSessions final : public testing::Environment {
public:
    void TearDown() override
    {
        EXPECT_TRUE(comes_true([] { return !has_kafka_threads(); }));
    }
};

[[maybe_unused]] const auto* const environment =
    testing::AddGlobalTestEnvironment(new WaitsForSessions);

} // namespace
