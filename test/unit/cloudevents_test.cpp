#include "sink/format/cloudevents.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <gtest/gtest.h>

namespace {

using namespace outbox::sink;

const std::string tracking_id = "0194266e-7a1b-7c3d-9e4f-0123456789ab";
const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736";

Event sample()
{
    Event event;
    event.id = 42;
    event.tracking_id = tracking_id;
    event.tenant_id = 7;
    event.aggregate_type = "order";
    event.aggregate_id = "A 1";
    event.event_type = "order.placed";
    event.event_version = 3;
    event.payload = R"({"a": 1,  "b": [1.0]})";
    event.occurred_at = 1'767'323'045'123'456;
    return event;
}

RenderedRequest render_one(const Event& event, HttpFormat format)
{
    const Event* events[] = {&event};
    return render_request(events, format, "/shop");
}

RenderedRequest render_batch(const std::vector<Event>& events)
{
    std::vector<const Event*> pointers;
    for (const Event& event : events)
        pointers.push_back(&event);
    return render_request(pointers, HttpFormat::batch, "/shop");
}

bool has_header(const RenderedRequest& request, const std::string& header)
{
    return std::find(request.headers.begin(), request.headers.end(), header) !=
           request.headers.end();
}

TEST(CloudEvents, BinaryFormatHasAttributesInHeaders)
{
    const RenderedRequest request = render_one(sample(), HttpFormat::binary);
    EXPECT_EQ(request.headers, (std::vector<std::string>{
                                   "Content-Type: application/json",
                                   "ce-specversion: 1.0",
                                   "ce-id: " + tracking_id,
                                   "ce-type: order.placed",
                                   "ce-source: /shop",
                                   "ce-subject: order/A%201",
                                   "ce-time: 2026-01-02T03:04:05.123456Z",
                                   "ce-partitionkey: A%201",
                                   "ce-sequence: 0000000000000000042",
                                   "ce-tenantid: 7",
                                   "ce-eventversion: 3",
                                   "webhook-id: " + tracking_id,
                                   "Idempotency-Key: \"" + tracking_id + "\"",
                               }));
    EXPECT_EQ(request.body, R"({"a": 1,  "b": [1.0]})");
    EXPECT_EQ(request.id, tracking_id);
}

TEST(CloudEvents, BinaryFormatHasMetadataAndTraceInHeaders)
{
    Event event = sample();
    event.attributes = {{"region", "Euro € 😀"}, {"nothing", ""}};
    event.trace_id = trace;
    const RenderedRequest request = render_one(event, HttpFormat::binary);
    EXPECT_TRUE(has_header(request, "ce-region: Euro%20%E2%82%AC%20%F0%9F%98%80"));
    EXPECT_TRUE(has_header(request, "traceparent: 00-" + trace + "-9e4f0123456789ab-01"));
    for (const std::string& header : request.headers)
        EXPECT_FALSE(header.starts_with("ce-nothing")) << "an attribute is never empty";
}

TEST(CloudEvents, NoHeaderCanBeSplit)
{
    Event event = sample();
    event.aggregate_type = "a\r\nX: y";
    event.aggregate_id = "b\nX: y";
    event.event_type = std::string("c\0d", 3);
    event.attributes = {{"region", "e\r\n\r\nbody"}};
    event.traceparent = "00-" + trace + "-00f067aa0ba902b7-01\r\nX: y";
    event.trace_id = "x\r\nX: y";
    const Event* events[] = {&event};
    for (const HttpFormat format :
         {HttpFormat::binary, HttpFormat::structured, HttpFormat::batch, HttpFormat::raw})
        for (const std::string& header : render_request(events, format, "/s\r\nX: y").headers)
            EXPECT_EQ(header.find_first_of(std::string_view("\r\n\0", 3)), std::string::npos)
                << header;
}

TEST(CloudEvents, StructuredFormatIsOneJsonObject)
{
    Event event = sample();
    event.attributes = {{"region", "say \"hi\"\n€"}};
    event.traceparent = "00-" + trace + "-00f067aa0ba902b7-01";
    const RenderedRequest request = render_one(event, HttpFormat::structured);
    EXPECT_EQ(request.headers, (std::vector<std::string>{
                                   "Content-Type: application/cloudevents+json",
                                   "traceparent: 00-" + trace + "-00f067aa0ba902b7-01",
                                   "webhook-id: " + tracking_id,
                                   "Idempotency-Key: \"" + tracking_id + "\"",
                               }));
    EXPECT_EQ(request.body,
              R"({"specversion":"1.0","id":")" + tracking_id +
                  R"(","type":"order.placed","source":"/shop","subject":"order/A 1",)"
                  R"("time":"2026-01-02T03:04:05.123456Z","partitionkey":"A 1",)"
                  R"("sequence":"0000000000000000042","tenantid":"7","eventversion":3,)"
                  R"("region":"say \"hi\"\u000a€","traceparent":"00-)" +
                  trace +
                  R"(-00f067aa0ba902b7-01","datacontenttype":"application/json",)"
                  R"("data":{"a": 1,  "b": [1.0]}})");
}

TEST(CloudEvents, ABatchIsAnArrayOfStructuredEvents)
{
    Event second = sample();
    second.id = 43;
    second.tracking_id = "0194266e-7a1b-7c3d-9e4f-0123456789ac";
    second.trace_id = trace;
    second.payload = "null";
    const RenderedRequest request = render_batch({sample(), second});
    EXPECT_EQ(request.body, "[" + render_one(sample(), HttpFormat::structured).body + "," +
                                render_one(second, HttpFormat::structured).body + "]");
    EXPECT_NE(request.body.find("\"data\":null}]"), std::string::npos);
    EXPECT_EQ(request.headers, (std::vector<std::string>{
                                   "Content-Type: application/cloudevents-batch+json",
                                   "webhook-id: " + request.id,
                                   "Idempotency-Key: \"" + request.id + "\"",
                               }));
}

TEST(CloudEvents, ABatchIdIsThatOfItsEvents)
{
    Event first = sample();
    Event second = sample();
    second.tracking_id = "0194266e-7a1b-7c3d-9e4f-0123456789ac";
    const std::string id = render_batch({first, second}).id;
    ASSERT_EQ(id.size(), 36u);
    EXPECT_EQ(id[8], '-');
    EXPECT_EQ(id[14], '8');
    EXPECT_NE(std::string("89ab").find(id[19]), std::string::npos);
    // A change of this value breaks the deduplication of batches that are in flight during an
    // upgrade.
    EXPECT_EQ(render_batch({first}).id, "7245ab64-a60b-8b5f-87d1-69feb9562a67");

    first.attempts = 5;
    first.token = 99;
    EXPECT_EQ(render_batch({first, second}).id, id);
    EXPECT_NE(render_batch({first}).id, id);
    EXPECT_NE(render_batch({second, first}).id, id);
    EXPECT_NE(render_batch({first, second, second}).id, id);
}

TEST(CloudEvents, RawFormatSendsThePayloadAlone)
{
    Event event = sample();
    event.trace_id = trace;
    event.attributes = {{"region", "x"}};
    const RenderedRequest request = render_one(event, HttpFormat::raw);
    EXPECT_EQ(request.body, event.payload);
    EXPECT_EQ(request.headers, (std::vector<std::string>{
                                   "Content-Type: application/json",
                                   "traceparent: 00-" + trace + "-9e4f0123456789ab-01",
                                   "webhook-id: " + tracking_id,
                                   "Idempotency-Key: \"" + tracking_id + "\"",
                               }));
}

TEST(CloudEvents, ARetryIsRenderedAlike)
{
    Event event = sample();
    event.trace_id = trace;
    for (const HttpFormat format :
         {HttpFormat::binary, HttpFormat::structured, HttpFormat::batch, HttpFormat::raw}) {
        const RenderedRequest first = render_one(event, format);
        ++event.attempts;
        const RenderedRequest again = render_one(event, format);
        EXPECT_EQ(first.body, again.body);
        EXPECT_EQ(first.headers, again.headers);
        EXPECT_EQ(first.id, again.id);
    }
}

TEST(CloudEvents, SeveralEventsNeedTheBatchFormat)
{
    const Event event = sample();
    const Event* events[] = {&event, &event};
    for (const HttpFormat format : {HttpFormat::binary, HttpFormat::structured, HttpFormat::raw})
        EXPECT_THROW(render_request(events, format, "/shop"), outbox::Error);
    for (const HttpFormat format :
         {HttpFormat::binary, HttpFormat::structured, HttpFormat::batch, HttpFormat::raw})
        EXPECT_THROW(render_request({}, format, "/shop"), outbox::Error);
}

TEST(CloudEvents, AnEventOf20MiBIsRenderedWhole)
{
    Event event = sample();
    event.payload = '"' + std::string(20 << 20, 'x') + '"';
    EXPECT_EQ(render_one(event, HttpFormat::binary).body, event.payload);
    EXPECT_GT(render_one(event, HttpFormat::structured).body.size(), event.payload.size());
}

TEST(Event, KnowsItsSize)
{
    Event event;
    const std::size_t empty = event.size();
    event.payload = std::string(1000, 'x');
    EXPECT_EQ(event.size(), empty + 1000);
    event.attributes = {{"region", "x"}};
    EXPECT_GT(event.size(), empty + 1007);
}

} // namespace
