#include "sink/kafka_record.hpp"

#include "sink/cloudevents.hpp"

namespace outbox::sink {

namespace {

constexpr std::int64_t microseconds_per_millisecond = 1000;

// As the Kafka protocol binding of CloudEvents names them. The values are UTF-8, without the
// escapes that HTTP needs. When it happened is in ce_time: a timestamp from then would let an old
// event that is sent again fall to the topic's retention at once.
void add_cloudevents(KafkaRecord& record, const Event& event, std::string_view source)
{
    for (Attribute& attribute : attributes_of(event, source))
        record.headers.emplace_back(std::string("ce_").append(attribute.name),
                                    std::move(attribute.value));
    record.headers.emplace_back("content-type", "application/json");
    if (auto traceparent = traceparent_of(event))
        record.headers.emplace_back("traceparent", std::move(*traceparent));
    if (event.payload == "null")
        record.value.reset();
}

void add_debezium(KafkaRecord& record, const Event& event)
{
    record.headers.emplace_back("id", event.tracking_id);
    record.timestamp_ms = event.occurred_at / microseconds_per_millisecond;
}

} // namespace

std::size_t KafkaRecord::size() const noexcept
{
    std::size_t bytes = key.size() + value.value_or(std::string_view{}).size();
    for (const auto& [name, text] : headers)
        bytes += name.size() + text.size();
    return bytes;
}

KafkaRecord to_record(const Event& event, KafkaFormat format, std::string_view source)
{
    KafkaRecord record;
    record.key = event.aggregate_id;
    record.value = event.payload;
    if (format == KafkaFormat::debezium)
        add_debezium(record, event);
    else
        add_cloudevents(record, event, source);
    return record;
}

} // namespace outbox::sink
