// A cluster of librdkafka's mock brokers, and a Kafka sink that sends to it.
#pragma once

#include "sink/kafka/kafka_sink.hpp"

#include <gtest/gtest.h>

#include <librdkafka/rdkafka_mock.h>
#include <poll.h>

#include <deque>
#include <map>
#include <stdexcept>
#include <thread>

namespace outbox::sink::test {

using namespace std::chrono_literals;

// Long enough for a busy machine; a test that passes never waits this long.
inline constexpr auto max_test_wait = 30s;

template <typename Condition>
bool comes_true(Condition condition, Clock::duration within = max_test_wait)
{
    for (const TimePoint end = Clock::now() + within; Clock::now() < end;
         std::this_thread::sleep_for(1ms))
        if (condition())
            return true;
    return condition();
}

// Payloads of the events `first` to `last`.
inline std::vector<std::string> numbers(int first, int last)
{
    std::vector<std::string> texts;
    for (int i = first; i <= last; ++i)
        texts.push_back(std::to_string(i));
    return texts;
}

inline Event make_event(std::int64_t id, const std::string& aggregate = "a")
{
    Event event;
    event.id = id;
    event.tracking_id = "0192f000-0000-7000-8000-" + std::to_string(100'000'000'000 + id);
    event.aggregate_type = "order";
    event.aggregate_id = aggregate;
    event.event_type = "order.created";
    event.payload = std::to_string(id);
    return event;
}

inline rd_kafka_t* make_client(rd_kafka_type_t type,
                               const std::vector<std::pair<const char*, std::string>>& properties)
{
    char problem[512];
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    rd_kafka_conf_set_log_cb(conf, nullptr);
    for (const auto& [name, value] : properties)
        if (rd_kafka_conf_set(conf, name, value.c_str(), problem, sizeof(problem)) !=
            RD_KAFKA_CONF_OK)
            throw std::runtime_error(problem);
    rd_kafka_t* client = rd_kafka_new(type, conf, problem, sizeof(problem));
    if (client == nullptr)
        throw std::runtime_error(problem);
    return client;
}

struct Stored {
    std::string key;
    std::optional<std::string> value;
    std::map<std::string, std::string> headers;
    std::int64_t timestamp_ms;
    int partition;
};

class Cluster {
public:
    // Topics that a test does not create have one partition, too, so that records of `t` have
    // one order.
    explicit Cluster(int brokers = 1)
        : client_(
              make_client(RD_KAFKA_PRODUCER, {{"test.mock.num.brokers", std::to_string(brokers)}})),
          mock_(rd_kafka_handle_mock_cluster(client_))
    {
        make_topic("t", 1);
    }

    ~Cluster() { rd_kafka_destroy(client_); }
    Cluster(const Cluster&) = delete;
    Cluster& operator=(const Cluster&) = delete;

    std::string servers() const { return rd_kafka_mock_cluster_bootstraps(mock_); }
    void make_topic(const char* name, int partitions)
    {
        EXPECT_EQ(rd_kafka_mock_topic_create(mock_, name, partitions, 1), 0);
    }
    void go_down() { rd_kafka_mock_broker_set_down(mock_, -1); }
    void come_up() { rd_kafka_mock_broker_set_up(mock_, -1); }
    void be_slow(std::chrono::milliseconds rtt)
    {
        rd_kafka_mock_broker_set_rtt(mock_, -1, static_cast<int>(rtt.count()));
    }
    void set_topic_error(const char* topic, rd_kafka_resp_err_t error)
    {
        rd_kafka_mock_topic_set_error(mock_, topic, error);
    }

    // Errors that the first broker returns for the next produce requests, and after which
    // delay.
    void answer_with(const std::vector<rd_kafka_resp_err_t>& errors,
                     std::chrono::milliseconds after = 0ms)
    {
        for (const rd_kafka_resp_err_t error : errors)
            rd_kafka_mock_broker_push_request_error_rtts(
                mock_, 1, produce, 1, static_cast<int>(error), static_cast<int>(after.count()));
    }

    // Number of produce requests to the first broker while `body` runs, up to 64.
    template <typename Body>
    std::size_t count_requests(Body body)
    {
        answer_with(std::vector(64, RD_KAFKA_RESP_ERR_NO_ERROR));
        const std::size_t before = answers_left();
        body();
        return before - answers_left();
    }

    // All records of a topic, partition by partition.
    std::vector<Stored> read(const char* topic = "t", int partitions = 1) const
    {
        rd_kafka_t* client = make_client(RD_KAFKA_CONSUMER, {{"bootstrap.servers", servers()},
                                                             {"enable.partition.eof", "true"},
                                                             {"fetch.wait.max.ms", "10"}});
        rd_kafka_topic_t* handle = rd_kafka_topic_new(client, topic, nullptr);
        std::vector<Stored> all;
        for (int partition = 0; partition < partitions; ++partition) {
            rd_kafka_consume_start(handle, partition, 0);
            EXPECT_TRUE(comes_true([&] { return has_read_to_the_end(handle, partition, all); }));
            rd_kafka_consume_stop(handle, partition);
        }
        rd_kafka_topic_destroy(handle);
        rd_kafka_destroy(client);
        return all;
    }

    std::vector<std::string> read_values(const char* topic = "t") const
    {
        std::vector<std::string> values;
        for (const Stored& stored : read(topic))
            values.push_back(stored.value.value_or("(none)"));
        return values;
    }

private:
    static constexpr std::int16_t produce = 0; // ApiKey of produce requests

    std::size_t answers_left() const
    {
        std::size_t count = 0;
        EXPECT_EQ(rd_kafka_mock_broker_error_stack_cnt(mock_, 1, produce, &count), 0);
        return count;
    }

    static bool has_read_to_the_end(rd_kafka_topic_t* topic, int partition,
                                    std::vector<Stored>& all)
    {
        rd_kafka_message_t* message = rd_kafka_consume(topic, partition, 100);
        if (message == nullptr)
            return false;
        const bool is_end = message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR)
            all.push_back(to_stored(*message));
        rd_kafka_message_destroy(message);
        return is_end;
    }

    static Stored to_stored(rd_kafka_message_t& message)
    {
        Stored stored;
        stored.key.assign(static_cast<const char*>(message.key), message.key_len);
        if (message.payload != nullptr)
            stored.value = std::string(static_cast<const char*>(message.payload), message.len);
        stored.timestamp_ms = rd_kafka_message_timestamp(&message, nullptr);
        stored.partition = message.partition;
        rd_kafka_headers_t* headers;
        const char* name;
        const void* value;
        std::size_t size;
        if (rd_kafka_message_headers(&message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR)
            for (std::size_t i = 0; rd_kafka_header_get_all(headers, i, &name, &value, &size) == 0;
                 ++i)
                stored.headers[name] = std::string(static_cast<const char*>(value), size);
        return stored;
    }

    rd_kafka_t* client_;
    rd_kafka_mock_cluster_t* mock_;
};

inline KafkaConfig config_for(const std::string& servers, const std::string& members = "")
{
    return parse_kafka_config(JsonConfig::parse(R"({"topic": "t", "bootstrap.servers": ")" +
                                                servers + "\"" +
                                                (members.empty() ? "" : ", " + members) + "}"));
}

inline KafkaConfig config_for(const Cluster& cluster, const std::string& members = "")
{
    return config_for(cluster.servers(), members);
}

// One request at a time, because the mock brokers do not check sequence numbers.
inline constexpr const char* in_small_steps = R"("batch.num.messages": 10, "max.in.flight": 1)";

// A Kafka sink and the results that it reports. Requests have the ids of their events.
class KafkaSender {
public:
    explicit KafkaSender(KafkaConfig config, const std::string& secrets = "")
        : sink(std::move(config), Secrets::parse(secrets), sink_context())
    {}

    std::optional<DeliveryResult> send(Event event)
    {
        kept_.push_back(std::move(event));
        const Event* events[] = {&kept_.back()};
        return sink.send(static_cast<RequestId>(events[0]->id), events, sink.stream_of(*events[0]));
    }

    void send_all(std::int64_t first, std::int64_t last)
    {
        for (std::int64_t id = first; id <= last; ++id)
            EXPECT_FALSE(send(make_event(id))) << id;
    }

    // Polls when wait_fd() or next_poll_at() asks for it.
    std::vector<DeliveryResult> wait_for(std::size_t count, Clock::duration within = max_test_wait)
    {
        const TimePoint end = Clock::now() + within;
        std::vector<DeliveryResult> results;
        while (results.size() < count && Clock::now() < end) {
            const TimePoint next = std::min(end, sink.next_poll_at().value_or(end));
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
            pollfd fd = {sink.wait_fd(), POLLIN, 0};
            poll(&fd, 1, std::max(0, static_cast<int>(left.count())));
            sink.poll(results);
        }
        EXPECT_EQ(results.size(), count);
        return results;
    }

    // Statuses of the results, by request id.
    std::vector<DeliveryStatus> statuses(std::size_t count)
    {
        std::map<RequestId, DeliveryStatus> found;
        for (const DeliveryResult& result : wait_for(count))
            EXPECT_TRUE(found.emplace(result.request_id, result.status).second)
                << result.request_id;
        std::vector<DeliveryStatus> statuses;
        for (const auto& [request_id, status] : found)
            statuses.push_back(status);
        return statuses;
    }

    // Polls until the sink can send, that is, until a session that ends has reported its
    // results.
    void wait_until_ready()
    {
        std::vector<DeliveryResult> results;
        EXPECT_TRUE(comes_true([&] {
            sink.poll(results);
            return sink.can_send();
        }));
        EXPECT_TRUE(results.empty());
    }

    DeliveryResult try_one(Event event)
    {
        if (auto result = send(std::move(event)))
            return *result;
        std::vector<DeliveryResult> results = wait_for(1);
        results.resize(1);
        return results.front();
    }

    KafkaSink sink;

private:
    static SinkContext sink_context()
    {
        SinkContext made;
        made.source = "/test";
        return made;
    }

    std::deque<Event> kept_;
};

} // namespace outbox::sink::test
