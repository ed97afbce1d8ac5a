#include "sink/kafka/record.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace {

using namespace outbox::sink;

using Headers = std::vector<std::pair<std::string_view, std::string_view>>;

Event make_event()
{
    Event event;
    event.id = 42;
    event.tracking_id = "0192f000-0000-7000-8000-00000000abcd";
    event.tenant_id = 7;
    event.aggregate_type = "order";
    event.aggregate_id = "o-1";
    event.event_type = "order.created";
    event.event_version = 3;
    event.payload = R"({"total": 12.50})";
    event.occurred_at = 1'767'323'045'123'456; // 2026-01-02T03:04:05.123456Z
    return event;
}

std::string header(const KafkaRecord& record, std::string_view name)
{
    const auto found = std::ranges::find(record.headers, name, &Headers::value_type::first);
    return found == record.headers.end() ? "(absent)" : std::string(found->second);
}

// The record points into the event, which must outlive it.
KafkaRecord cloudevent(const Event& event)
{
    KafkaRecord record;
    write_record(record, event, KafkaFormat::cloudevents, "/test");
    return record;
}

KafkaRecord debezium(const Event& event)
{
    KafkaRecord record;
    write_record(record, event, KafkaFormat::debezium, "/test");
    return record;
}

TEST(KafkaRecord, ACloudEventHasItsAttributesInHeaders)
{
    const Event event = make_event();
    const KafkaRecord record = cloudevent(event);
    EXPECT_EQ(record.key, "o-1");
    EXPECT_EQ(record.value, R"({"total": 12.50})");
    EXPECT_EQ(record.headers, (Headers{{"ce_specversion", "1.0"},
                                       {"ce_id", "0192f000-0000-7000-8000-00000000abcd"},
                                       {"ce_type", "order.created"},
                                       {"ce_source", "/test"},
                                       {"ce_subject", "order/o-1"},
                                       {"ce_time", "2026-01-02T03:04:05.123456Z"},
                                       {"ce_partitionkey", "o-1"},
                                       {"ce_sequence", "0000000000000000042"},
                                       {"ce_tenantid", "7"},
                                       {"ce_eventversion", "3"},
                                       {"content-type", "application/json"}}));
}

TEST(KafkaRecord, TheDebeziumFormatHasOneHeader)
{
    Event event = make_event();
    event.attributes = {{"region", "eu"}};
    event.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
    const KafkaRecord record = debezium(event);
    EXPECT_EQ(record.key, "o-1");
    EXPECT_EQ(record.value, R"({"total": 12.50})");
    EXPECT_EQ(record.headers, (Headers{{"id", "0192f000-0000-7000-8000-00000000abcd"}}));
}

// Retention of Kafka uses the timestamp, and an old event may be sent again.
TEST(KafkaRecord, ACloudEventLeavesItsTimestampToTheTimeOfSending)
{
    EXPECT_EQ(cloudevent(make_event()).timestamp_ms, 0);
}

TEST(KafkaRecord, TheDebeziumFormatHasTheTimeOfTheEvent)
{
    EXPECT_EQ(debezium(make_event()).timestamp_ms, 1'767'323'045'123);
}

TEST(KafkaRecord, ACloudEventWithANullPayloadIsATombstone)
{
    Event event = make_event();
    event.payload = "null";
    EXPECT_EQ(cloudevent(event).value, std::nullopt);
    EXPECT_EQ(header(cloudevent(event), "ce_type"), "order.created");
    for (const char* payload : {"\"null\"", "[null]", "{}", "0", "\"\""}) {
        event.payload = payload;
        EXPECT_EQ(cloudevent(event).value, payload);
    }
}

// Debezium's outbox event router has an option for tombstones, which is off by default.
TEST(KafkaRecord, TheDebeziumFormatKeepsNullAsAPayload)
{
    Event event = make_event();
    event.payload = "null";
    EXPECT_EQ(debezium(event).value, "null");
}

TEST(KafkaRecord, TextIsNotEncoded)
{
    Event event = make_event();
    event.aggregate_id = "Größe \"1\" 100% 😀";
    event.payload = R"({"ü": "\u0041 😀"})";
    event.attributes = {{"city", "Zürich, 東京"}};
    const KafkaRecord both[] = {cloudevent(event), debezium(event)};
    for (const KafkaRecord& record : both) {
        EXPECT_EQ(record.key, event.aggregate_id);
        EXPECT_EQ(record.value, event.payload);
    }
    EXPECT_EQ(header(cloudevent(event), "ce_partitionkey"), event.aggregate_id);
    EXPECT_EQ(header(cloudevent(event), "ce_subject"), "order/" + event.aggregate_id);
    EXPECT_EQ(header(cloudevent(event), "ce_city"), "Zürich, 東京");
}

TEST(KafkaRecord, MetadataBecomesAttributes)
{
    Event event = make_event();
    event.attributes = {{"region", "eu"}, {"empty", ""}, {"user", "7"}};
    const KafkaRecord record = cloudevent(event);
    EXPECT_EQ(header(record, "ce_region"), "eu");
    EXPECT_EQ(header(record, "ce_user"), "7");
    EXPECT_EQ(header(record, "ce_empty"), "(absent)"); // CloudEvents has no empty values
}

TEST(KafkaRecord, AValidTraceBecomesATraceparentHeader)
{
    Event event = make_event();
    EXPECT_EQ(header(cloudevent(event), "traceparent"), "(absent)");
    event.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
    EXPECT_EQ(header(cloudevent(event), "traceparent"),
              "00-4bf92f3577b34da6a3ce929d0e0e4736-800000000000abcd-01");
    event.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    EXPECT_EQ(header(cloudevent(event), "traceparent"), event.traceparent);
    event.traceparent = event.trace_id = "nonsense";
    EXPECT_EQ(header(cloudevent(event), "traceparent"), "(absent)");
}

TEST(KafkaRecord, ATraceOfMaximumLengthLeavesTheOtherHeadersUnchanged)
{
    Event event = make_event();
    event.traceparent = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-";
    event.traceparent.append(512 - event.traceparent.size(), 'x');
    const KafkaRecord record = cloudevent(event);
    EXPECT_EQ(header(record, "traceparent"), event.traceparent);
    EXPECT_EQ(header(record, "ce_specversion"), "1.0");
    EXPECT_EQ(header(record, "content-type"), "application/json");
}

TEST(KafkaRecord, SizeCountsKeyValueAndHeaders)
{
    KafkaRecord record;
    EXPECT_EQ(record.size(), 0u);
    record.key = "123";
    record.value = "12345";
    record.header_text = "abcd";
    EXPECT_EQ(record.size(), 12u);
    record.value.reset();
    EXPECT_EQ(record.size(), 7u);
}

} // namespace
