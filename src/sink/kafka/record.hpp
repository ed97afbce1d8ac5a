#pragma once

#include "sink/interface/event.hpp"
#include "sink/kafka/kafka_config.hpp"

#include <optional>
#include <string_view>

namespace outbox::sink {

// An event as Kafka sees it. Key and value are the event's own; the headers lie in `text`, so that
// a record that is used again allocates nothing.
struct KafkaRecord {
    std::string_view key;
    std::optional<std::string_view> value; // nothing: a tombstone
    std::vector<std::pair<std::string_view, std::string_view>> headers;
    std::int64_t timestamp_ms = 0; // 0: the time of sending
    std::string header_text;

    KafkaRecord() = default;
    KafkaRecord(KafkaRecord&&) = default;
    KafkaRecord& operator=(KafkaRecord&&) = default;

    // How much of it counts against the limits of brokers.
    std::size_t size() const noexcept;
};

// Into `record`, which is good for as long as the event.
void write_record(KafkaRecord& record, const Event& event, KafkaFormat format,
                  std::string_view source);

} // namespace outbox::sink
