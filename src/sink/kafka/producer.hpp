// One session with a Kafka cluster: an idempotent producer of librdkafka, which has threads of its
// own. The only callback that runs in them opens sockets and attributes aborts of the thread to the
// sink. Delivery reports, errors and log lines come as events through a queue.
#pragma once

#include "sink/kafka/kafka_config.hpp"
#include "sink/kafka/record.hpp"
#include "sink/util/abort_trap.hpp"

#include <librdkafka/rdkafka.h>

#include <memory>
#include <unordered_map>

namespace outbox::sink {

// A session. After an abort of one of its threads, no function may be called, nor the destructor.
class KafkaProducer {
public:
    // Starts the session without waiting for a broker. `config` is resolved. Raises 22023 with the
    // message of librdkafka if properties contradict each other, std::runtime_error if a thread or
    // a descriptor is missing. Aborts of the session's threads set `abort_flag`.
    KafkaProducer(const KafkaConfig& config, std::shared_ptr<AbortFlag> abort_flag);

    // Drops all records. librdkafka may take long to end, for example to resolve a name; a detached
    // thread does that. If it cannot be started, the session is leaked.
    ~KafkaProducer();
    KafkaProducer(const KafkaProducer&) = delete;
    KafkaProducer& operator=(const KafkaProducer&) = delete;

    // eventfd that is readable when poll() has events.
    int wait_fd() const { return event_fd_; }

    // Copies a record to librdkafka's queue; its delivery report has `opaque`. Returns
    // RD_KAFKA_RESP_ERR_NO_ERROR, or why the record was not queued.
    rd_kafka_resp_err_t send(const std::string& topic, const KafkaRecord& record, void* opaque);

    // Returns the next event, which the caller destroys; nullptr if there is none.
    rd_kafka_event_t* poll() { return rd_kafka_queue_poll(queue_, 0); }

    // Makes wait_fd() unreadable. To be called before poll(), which must then be called until it
    // returns nullptr.
    void drain() const;

    // Removes records that were not sent to a broker; each gets a delivery report.
    void purge_unsent() const;

    // Returns the error that ended the session; empty if there is none.
    std::string fatal_error() const;

private:
    // Returns the handle of a topic from the cache, or a new one; nullptr: see
    // rd_kafka_last_error(). A full cache is emptied first, which invalidates its handles.
    rd_kafka_topic_t* topic_handle(const std::string& name);

    std::shared_ptr<AbortFlag> abort_flag_; // shared with the threads, which may outlive this
    rd_kafka_t* handle_ = nullptr;
    rd_kafka_queue_t* queue_ = nullptr; // main queue of librdkafka's events
    int event_fd_ = -1;
    std::unordered_map<std::string, rd_kafka_topic_t*> topics_; // cache of topic handles
};

// Returns true while the process has threads of librdkafka. The process must then leave by _exit(),
// because the threads may use what exit() destroys.
bool has_kafka_threads() noexcept;

} // namespace outbox::sink
