// One session with a Kafka cluster: an idempotent producer of librdkafka, with threads of its own.
// Of ours only a socket is opened in them, to see whose they are; what they have to say comes as
// events through a queue.
#pragma once

#include "sink/kafka/kafka_config.hpp"
#include "sink/kafka/record.hpp"
#include "sink/util/abort_trap.hpp"

#include <librdkafka/rdkafka.h>

#include <memory>
#include <unordered_map>

namespace outbox::sink {

class KafkaProducer {
public:
    // Throws 22023 with librdkafka's own words if the settings do not fit together. When one of its
    // threads has failed, nothing of the session may be called any more, nor may it end.
    KafkaProducer(const KafkaConfig& config, std::shared_ptr<AbortFlag> abort_flag);

    // Whatever is on the way is forgotten. Ending a session can take its time, for a name to be
    // resolved, say: that is left to a thread that nobody waits for.
    ~KafkaProducer();
    KafkaProducer(const KafkaProducer&) = delete;
    KafkaProducer& operator=(const KafkaProducer&) = delete;

    // Readable when there are events.
    int wait_fd() const { return event_fd_; }

    // Copies the record. RD_KAFKA_RESP_ERR_NO_ERROR, or why it was not taken.
    rd_kafka_resp_err_t send(const std::string& topic, const KafkaRecord& record, void* opaque);

    // The next event, if there is one.
    rd_kafka_event_t* poll() { return rd_kafka_queue_poll(queue_, 0); }

    // Makes wait_fd() silent until there is something new; then poll until there is nothing.
    void drain() const;

    // Takes back what is not with the brokers yet: reports say so.
    void purge_unsent() const;

    // Why the session can go on no longer, if so.
    std::string fatal_error() const;

private:
    rd_kafka_topic_t* topic_handle(const std::string& name);

    std::shared_ptr<AbortFlag> abort_flag_; // the threads that talk to brokers work for it
    rd_kafka_t* handle_ = nullptr;
    rd_kafka_queue_t* queue_ = nullptr;
    int event_fd_ = -1;
    std::unordered_map<std::string, rd_kafka_topic_t*> topics_;
};

// Are there threads of librdkafka in this process? Then what they use must not be torn down.
bool has_kafka_threads() noexcept;

} // namespace outbox::sink
