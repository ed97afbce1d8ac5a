// Rendering of events as Kafka records.
#include "sink/kafka/record.hpp"

#include "event_input.hpp"

namespace outbox::fuzz {

using Headers = std::vector<std::pair<std::string, std::string>>;

Headers headers_of(const EventInput& given)
{
    Headers headers;
    sink::visit_attributes(given.event, given.source,
                           [&](std::string_view name, std::string_view value) {
                               headers.emplace_back("ce_" + std::string(name), value);
                           });
    headers.emplace_back("content-type", "application/json");
    if (const auto traceparent = sink::traceparent_of(given.event))
        headers.emplace_back("traceparent", *traceparent);
    return headers;
}

Headers headers_of(const sink::KafkaRecord& record)
{
    return {record.headers.begin(), record.headers.end()};
}

void check_common(const EventInput& given, const sink::KafkaRecord& record)
{
    must(record.key == given.event.aggregate_id, "the key is the aggregate's id");
    must(!record.value || *record.value == given.event.payload, "the value is the payload");
    std::size_t size = record.key.size() + record.value.value_or("").size();
    for (const auto& [name, value] : record.headers) {
        size += name.size() + value.size();
        must(name.data() >= record.header_text.data() &&
                 value.data() + value.size() <=
                     record.header_text.data() + record.header_text.size(),
             "headers point into the record");
        must(decode_utf8(value).has_value(), "a header's value is UTF-8");
    }
    must(record.size() == size, "the size of a record is the sum of its parts");
}

void try_one(std::string_view input)
{
    const EventInput given = read_event(input);
    sink::KafkaRecord record; // reused, as in the sink
    for (int round = 0; round < 2; ++round) {
        sink::write_record(record, given.event, sink::KafkaFormat::debezium, given.source);
        check_common(given, record);
        must(headers_of(record) == Headers{{"id", given.event.tracking_id}},
             "Debezium's header is the id");
        must(record.timestamp_ms == given.event.occurred_at / 1000,
             "the timestamp is the time of the event");

        sink::write_record(record, given.event, sink::KafkaFormat::cloudevents, given.source);
        check_common(given, record);
        must(headers_of(record) == headers_of(given),
             "attributes are headers with unchanged values");
        must(record.value.has_value() == (given.event.payload != "null"), "null is a tombstone");
        must(record.timestamp_ms == 0, "the timestamp is left to the time of sending");
    }
}

} // namespace outbox::fuzz
