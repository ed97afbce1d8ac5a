#pragma once

#include "sink/interface/delivery_result.hpp"

#include <librdkafka/rdkafka.h>

namespace outbox::sink {

// What an error of librdkafka's says about a message.
enum class KafkaErrorClass {
    message, // this one, or another of the same request, is not to the broker's liking
    session, // it went down with the session that it was sent in
    topic,   // there is no such topic, or no right to it
    sink,    // brokers, credentials: nothing that the message could help
};

KafkaErrorClass classify_error(rd_kafka_resp_err_t error) noexcept;

// Does it depend on how much was sent at once?
bool is_size_error(rd_kafka_resp_err_t error) noexcept;

} // namespace outbox::sink
