#include "sink/dispatch/event_pool.hpp"

#include <gtest/gtest.h>

namespace {

using namespace outbox::sink;

Event full_event()
{
    Event event;
    event.id = 1;
    event.token = 2;
    event.tracking_id = "01935a0f-ff00-7abc-8def-102030405069";
    event.tenant_id = 3;
    event.aggregate_type = "Order";
    event.aggregate_id = "4";
    event.event_type = "OrderPlaced";
    event.event_version = 5;
    event.payload = R"({"what": "a secret of this one"})";
    event.attributes = {{"region", "eu"}};
    event.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    event.trace_id = "6";
    event.span_id = "7";
    event.occurred_at = 8;
    event.attempts = 9;
    event.event_stats = {1, 2, 3};
    return event;
}

TEST(EventPool, NothingOfAnEventGetsIntoTheNext)
{
    EventPool pool;
    auto event = std::make_unique<Event>(full_event());
    const Event* const place = event.get();
    const char* const text = event->payload.data();
    pool.release(std::move(event), 100);
    const std::unique_ptr<Event> next = pool.acquire();
    EXPECT_EQ(next.get(), place);
    EXPECT_TRUE(*next == Event{});
    EXPECT_EQ(next->payload.data(), text) << "the payload's memory must be reused";
}

TEST(EventPool, AnEmptyPoolMakesANewEvent)
{
    EventPool pool;
    EXPECT_TRUE(*pool.acquire() == Event{});
    pool.release(std::make_unique<Event>(full_event()), 100);
    pool.clear();
    EXPECT_EQ(pool.acquire()->payload.capacity(), Event{}.payload.capacity());
}

TEST(EventPool, LargeEventsAreNotKept)
{
    EventPool pool;
    auto event = std::make_unique<Event>(full_event());
    event->payload = std::string(1 << 20, 'x');
    const std::size_t size = event->size();
    pool.release(std::move(event), size);
    EXPECT_LT(pool.acquire()->payload.capacity(), 1u << 20);
}

TEST(EventPool, KeepsALimitedNumberOfEvents)
{
    EventPool pool;
    for (int i = 0; i < 100'000; ++i)
        pool.release(std::make_unique<Event>(full_event()), 100);
    int kept = 0;
    while (pool.acquire()->payload.capacity() > Event{}.payload.capacity())
        ++kept;
    EXPECT_GT(kept, 1'000);
    EXPECT_LT(kept, 10'000);
}

} // namespace
