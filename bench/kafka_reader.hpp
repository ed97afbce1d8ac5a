// Reads all records of a topic from the beginning, or new records as soon as they are available.
#pragma once

#include "kafka_url.hpp"

#include <librdkafka/rdkafka.h>

#include <memory>

class KafkaReader {
public:
    enum class From { beginning, now };
    using Record = std::unique_ptr<rd_kafka_message_t, decltype(&rd_kafka_message_destroy)>;

    // Returns when the reader is at its position: records that are written afterwards are read.
    KafkaReader(const KafkaUrl& url, From from)
    {
        rd_kafka_conf_t* conf = rd_kafka_conf_new();
        char problem[512];
        // The broker answers a fetch as soon as it has one byte, without waiting for more.
        const char* settings[][2] = {{"bootstrap.servers", url.broker.c_str()},
                                     {"fetch.min.bytes", "1"},
                                     {"fetch.wait.max.ms", "100"},
                                     {"fetch.error.backoff.ms", "10"}};
        for (const auto& [name, value] : settings)
            if (rd_kafka_conf_set(conf, name, value, problem, sizeof(problem)))
                throw std::runtime_error(problem);
        handle_ = rd_kafka_new(RD_KAFKA_CONSUMER, conf, problem, sizeof(problem));
        if (handle_ == nullptr)
            throw std::runtime_error(problem);
        topic_ = rd_kafka_topic_new(handle_, url.topic.c_str(), nullptr);
        queue_ = rd_kafka_queue_new(handle_);
        partitions_ = count_partitions();
        for (int partition = 0; partition < partitions_; ++partition)
            start(url.topic, partition, from);
    }
    ~KafkaReader()
    {
        for (int partition = 0; partition < partitions_; ++partition)
            rd_kafka_consume_stop(topic_, partition);
        rd_kafka_queue_destroy(queue_);
        rd_kafka_topic_destroy(topic_);
        rd_kafka_destroy(handle_);
    }
    KafkaReader(const KafkaReader&) = delete;
    KafkaReader& operator=(const KafkaReader&) = delete;

    // Returns an empty pointer after the timeout.
    Record next(int milliseconds)
    {
        Record record(rd_kafka_consume_queue(queue_, milliseconds), rd_kafka_message_destroy);
        if (record && record->err == RD_KAFKA_RESP_ERR__PARTITION_EOF)
            record.reset();
        if (record)
            check(record->err);
        return record;
    }

private:
    static constexpr int patience_ms = 10'000;

    static void check(rd_kafka_resp_err_t error)
    {
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
            throw std::runtime_error(rd_kafka_err2str(error));
    }

    int count_partitions()
    {
        const rd_kafka_metadata_t* metadata = nullptr;
        check(rd_kafka_metadata(handle_, 0, topic_, &metadata, patience_ms));
        const int count = metadata->topics[0].partition_cnt;
        rd_kafka_metadata_destroy(metadata);
        return count;
    }

    void start(const std::string& topic, int partition, From from)
    {
        std::int64_t low = 0, high = 0;
        check(rd_kafka_query_watermark_offsets(handle_, topic.c_str(), partition, &low, &high,
                                               patience_ms));
        if (rd_kafka_consume_start_queue(topic_, partition, from == From::now ? high : low, queue_))
            check(rd_kafka_last_error());
    }

    rd_kafka_t* handle_;
    rd_kafka_topic_t* topic_;
    rd_kafka_queue_t* queue_;
    int partitions_ = 0;
};
