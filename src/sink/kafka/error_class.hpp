#pragma once

#include "sink/interface/delivery_result.hpp"

#include <librdkafka/rdkafka.h>

namespace outbox::sink {

// What an error of librdkafka's says about a message.
enum class KafkaFailure {
    message, // this one, or another of the same request, is not to the broker's liking
    session, // it went down with the session that it was sent in
    topic,   // there is no such topic, or no right to it
    sink,    // brokers, credentials: nothing that the message could help
};

KafkaFailure failure_of(rd_kafka_resp_err_t error) noexcept;

// Does it depend on how much was sent at once?
bool is_about_size(rd_kafka_resp_err_t error) noexcept;

} // namespace outbox::sink
