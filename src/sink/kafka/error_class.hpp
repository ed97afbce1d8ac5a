#pragma once

#include "sink/interface/delivery_result.hpp"

#include <librdkafka/rdkafka.h>

namespace outbox::sink {

// Cause of an error in a delivery report.
enum class KafkaErrorClass {
    message, // the record, or another one of its batch, is invalid or too large
    session, // the session ended; the record itself has no error
    topic,   // the topic does not exist, is invalid, or may not be written
    sink,    // brokers or credentials
};

// Returns the cause of an error code of librdkafka; `sink` for unknown codes.
KafkaErrorClass classify_error(rd_kafka_resp_err_t error) noexcept;

// Returns true if the error means that a record or a batch is too large.
bool is_size_error(rd_kafka_resp_err_t error) noexcept;

} // namespace outbox::sink
