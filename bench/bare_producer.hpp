// librdkafka's producer alone, with the settings of the Kafka sink.
#pragma once

#include "kafka_url.hpp"

#include "sink/kafka/kafka_config.hpp"

#include <librdkafka/rdkafka.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

class BareProducer {
public:
    using Header = std::pair<std::string_view, std::string_view>;
    using Settings = std::vector<std::pair<std::string, std::string>>;

    // `settings` override those of the sink.
    explicit BareProducer(const KafkaUrl& url, const Settings& settings = {})
    {
        outbox::sink::KafkaConfig config;
        config.properties = {{"bootstrap.servers", url.broker}};
        rd_kafka_conf_t* conf = outbox::sink::make_conf(config).release();
        char problem[512];
        for (const auto& [name, value] : settings)
            if (rd_kafka_conf_set(conf, name.c_str(), value.c_str(), problem, sizeof(problem)))
                die(problem);
        rd_kafka_conf_set_opaque(conf, this);
        rd_kafka_conf_set_dr_msg_cb(conf, report);
        handle_ = rd_kafka_new(RD_KAFKA_PRODUCER, conf, problem, sizeof(problem));
        if (handle_ == nullptr)
            die(problem);
        topic_ = rd_kafka_topic_new(handle_, url.topic.c_str(), nullptr);
    }
    ~BareProducer()
    {
        rd_kafka_topic_destroy(topic_);
        rd_kafka_destroy(handle_);
    }
    BareProducer(const BareProducer&) = delete;
    BareProducer& operator=(const BareProducer&) = delete;

    // Waits while the queue of librdkafka is full. Thread-safe.
    void send(std::string_view key, std::string_view value, const std::vector<Header>& headers)
    {
        rd_kafka_headers_t* list = rd_kafka_headers_new(headers.size());
        for (const auto& [name, text] : headers)
            rd_kafka_header_add(list, name.data(), static_cast<ssize_t>(name.size()), text.data(),
                                static_cast<ssize_t>(text.size()));
        rd_kafka_resp_err_t error;
        while ((error = try_to_send(key, value, list)) == RD_KAFKA_RESP_ERR__QUEUE_FULL)
            rd_kafka_poll(handle_, 100);
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
            die(rd_kafka_err2str(error));
        if (++sent_ % between_polls == 0)
            rd_kafka_poll(handle_, 0);
    }

    // Returns when the brokers have acknowledged all records.
    void finish()
    {
        while (delivered_ < sent_)
            rd_kafka_poll(handle_, 100);
    }

private:
    static constexpr long between_polls = 100;

    [[noreturn]] static void die(const char* problem)
    {
        std::fprintf(stderr, "librdkafka: %s\n", problem);
        std::exit(1);
    }

    static void report(rd_kafka_t*, const rd_kafka_message_t* message, void* self)
    {
        if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR)
            die(rd_kafka_err2str(message->err));
        ++static_cast<BareProducer*>(self)->delivered_;
    }

    rd_kafka_resp_err_t try_to_send(std::string_view key, std::string_view value,
                                    rd_kafka_headers_t* headers)
    {
        return rd_kafka_producev(handle_, RD_KAFKA_V_RKT(topic_),
                                 RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                 RD_KAFKA_V_KEY(key.data(), key.size()),
                                 RD_KAFKA_V_VALUE(const_cast<char*>(value.data()), value.size()),
                                 RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END);
    }

    rd_kafka_t* handle_;
    rd_kafka_topic_t* topic_;
    std::atomic<long> sent_ = 0, delivered_ = 0;
};
