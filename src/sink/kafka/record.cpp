#include "sink/kafka/record.hpp"

#include "sink/format/cloudevents.hpp"

namespace outbox::sink {

namespace {

constexpr std::int64_t microseconds_per_millisecond = 1000;

// Bytes for the names of all headers and for values that are not text of the event (numbers, time).
constexpr std::size_t reserved_header_bytes = 512;

// Appends to `text` and returns the appended part. The capacity must suffice (max_header_bytes()),
// because a reallocation would invalidate the earlier views.
std::string_view append_text(std::string& text, std::string_view part)
{
    const std::size_t start = text.size();
    text += part;
    return std::string_view(text).substr(start);
}

// Adds the header <prefix><name>. Name and value are copied to header_text, whose capacity must
// suffice.
void add_header(KafkaRecord& record, std::string_view prefix, std::string_view name,
                std::string_view value)
{
    const std::size_t start = record.header_text.size();
    append_text(record.header_text, prefix);
    append_text(record.header_text, name);
    const std::string_view whole_name = std::string_view(record.header_text).substr(start);
    record.headers.emplace_back(whole_name, append_text(record.header_text, value));
}

// Returns an upper bound for the bytes that the headers of the event need in header_text.
std::size_t max_header_bytes(const Event& event, std::string_view source)
{
    std::size_t size = reserved_header_bytes + source.size() + event.tracking_id.size() +
                       event.event_type.size() + event.aggregate_type.size() +
                       2 * event.aggregate_id.size() + event.traceparent.size() +
                       event.trace_id.size();
    for (const auto& [name, value] : event.attributes)
        size += name.size() + value.size() + 3;
    return size;
}

// Writes the headers of the Kafka protocol binding of CloudEvents (binary mode). The values are
// UTF-8 without the escapes of HTTP. The time of the event is in ce_time, not in the record's
// timestamp: the topic's retention would delete an old event that is sent again at once. A payload
// of JSON null becomes a tombstone.
void add_cloudevents(KafkaRecord& record, const Event& event, std::string_view source)
{
    visit_attributes(event, source, [&](std::string_view name, std::string_view value) {
        add_header(record, "ce_", name, value);
    });
    add_header(record, "", "content-type", "application/json");
    if (const auto traceparent = traceparent_of(event))
        add_header(record, "", "traceparent", *traceparent);
    if (event.payload == "null")
        record.value.reset();
}

// Adds the header id and sets the record's timestamp to the event's time.
void add_debezium(KafkaRecord& record, const Event& event)
{
    add_header(record, "", "id", event.tracking_id);
    record.timestamp_ms = event.occurred_at / microseconds_per_millisecond;
}

} // namespace

std::size_t KafkaRecord::size() const noexcept
{
    return key.size() + value.value_or(std::string_view{}).size() + header_text.size();
}

void write_record(KafkaRecord& record, const Event& event, KafkaFormat format,
                  std::string_view source)
{
    record.key = event.aggregate_id;
    record.value = event.payload;
    record.headers.clear();
    record.timestamp_ms = 0;
    record.header_text.clear();
    record.header_text.reserve(max_header_bytes(event, source));
    if (format == KafkaFormat::debezium)
        add_debezium(record, event);
    else
        add_cloudevents(record, event, source);
}

} // namespace outbox::sink
