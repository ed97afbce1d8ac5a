#pragma once

#include "sink/interface/event.hpp"
#include "sink/kafka/kafka_config.hpp"

#include <optional>
#include <string_view>

namespace outbox::sink {

// A Kafka record. Key and value point into the event, headers into `header_text`: a record that is
// reused allocates nothing.
struct KafkaRecord {
    std::string_view key;
    std::optional<std::string_view> value; // std::nullopt: a tombstone
    std::vector<std::pair<std::string_view, std::string_view>> headers;
    std::int64_t timestamp_ms = 0; // 0: librdkafka uses the time of sending
    std::string header_text;

    KafkaRecord() = default;
    KafkaRecord(KafkaRecord&&) = default;
    KafkaRecord& operator=(KafkaRecord&&) = default;

    // Size in bytes that counts against batch.size and the brokers' limits.
    std::size_t size() const noexcept;
};

// Overwrites `record` with the event: key aggregate_id, value payload, and the headers of `format`.
// Key and value point into the event, which must outlive the record.
void write_record(KafkaRecord& record, const Event& event, KafkaFormat format,
                  std::string_view source);

} // namespace outbox::sink
