#include "sink/kafka/threaded_sink.hpp"

#include "kafka_stage.hpp"
#include "sink/dispatch/pipelined_dispatcher.hpp"

#include <csignal>

#include <atomic>
#include <set>

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;

// State of the sink in the thread that a test reads and sets.
struct Inside {
    std::mutex mutex;
    std::vector<std::int64_t> sent;
    std::vector<StreamId> streams;
    std::vector<std::string> payloads;
    std::thread::id thread;
    bool signals_are_blocked = false;
    bool fails = false;
    std::vector<std::string> log_lines;
    std::string status_message;
    std::atomic<bool> can_send = true;
    std::atomic<bool> answers = true;
    std::atomic<int> cancelled = 0;
    EventFd event_fd; // the sink's wait_fd()

    std::vector<std::int64_t> sent_so_far()
    {
        const std::lock_guard lock(mutex);
        return sent;
    }
};

// Delivers every event at the next poll().
class PlainSink final : public Sink {
public:
    explicit PlainSink(Inside& inside) : inside_(inside) {}

    int wait_fd() const override { return inside_.event_fd.fd(); }
    std::optional<TimePoint> next_poll_at() const override { return std::nullopt; }
    std::vector<std::string> metadata_keys() const override { return {"region"}; }
    std::size_t max_in_flight() const override { return 1000; }
    std::size_t max_events_per_request() const override { return 1; }
    bool preserves_order() const override { return true; }
    StreamId stream_of(const Event& event) const override
    {
        return static_cast<StreamId>(event.id);
    }
    bool can_send() const override { return inside_.can_send; }
    std::optional<DeliveryResult> send(RequestId request_id, std::span<const Event* const> events,
                                       StreamId stream) override
    {
        const std::lock_guard lock(inside_.mutex);
        if (inside_.fails)
            throw std::runtime_error("out of luck");
        note_thread();
        inside_.sent.push_back(events.front()->id);
        inside_.streams.push_back(stream);
        inside_.payloads.push_back(events.front()->payload);
        in_flight_.push_back(request_id);
        return std::nullopt;
    }
    void flush() override {}
    void poll(std::vector<DeliveryResult>& results) override
    {
        inside_.event_fd.drain();
        if (!inside_.answers)
            return;
        for (const RequestId request_id : std::exchange(in_flight_, {}))
            results.push_back({request_id, DeliveryStatus::delivered, {}, std::nullopt});
    }
    void cancel_all() override
    {
        in_flight_.clear();
        ++inside_.cancelled;
    }
    std::string status_message() const override
    {
        const std::lock_guard lock(inside_.mutex);
        return inside_.status_message;
    }
    std::vector<std::string> take_log_lines() override
    {
        const std::lock_guard lock(inside_.mutex);
        return std::exchange(inside_.log_lines, {});
    }

private:
    void note_thread()
    {
        inside_.thread = std::this_thread::get_id();
        sigset_t blocked;
        pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
        inside_.signals_are_blocked =
            sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGURG);
    }

    Inside& inside_;
    std::vector<RequestId> in_flight_;
};

struct Stage {
    Inside inside;
    std::deque<Event> events;
    ThreadedSink sink{std::make_unique<PlainSink>(inside)};
    std::vector<DeliveryResult> results;

    void send(std::int64_t id)
    {
        events.push_back(make_event(id));
        const Event* pointers[] = {&events.back()};
        EXPECT_FALSE(
            sink.send(static_cast<RequestId>(id), pointers, sink.stream_of(events.back())));
    }

    // Polls as the relay does: only when the wait descriptor is readable.
    bool receives(std::size_t count)
    {
        for (const TimePoint end = Clock::now() + max_test_wait;
             results.size() < count && Clock::now() < end;) {
            pollfd fd = {sink.wait_fd(), POLLIN, 0};
            if (poll(&fd, 1, 100) > 0)
                sink.poll(results);
        }
        return results.size() == count;
    }
};

TEST(ThreadedSink, EventsAndResultsKeepTheirOrder)
{
    Stage stage;
    constexpr std::size_t many = 1000;
    for (std::int64_t id = 1; id <= static_cast<std::int64_t>(many); ++id)
        stage.send(id);
    stage.sink.flush();
    ASSERT_TRUE(stage.receives(many));
    for (std::size_t i = 0; i < many; ++i) {
        EXPECT_EQ(stage.inside.sent[i], static_cast<std::int64_t>(i + 1));
        EXPECT_EQ(stage.inside.streams[i], i + 1);
        EXPECT_EQ(stage.results[i].request_id, i + 1);
    }
}

TEST(ThreadedSink, WorksInAThreadThatBlocksAllSignals)
{
    Stage stage;
    EXPECT_TRUE(has_sink_threads());
    stage.send(1);
    stage.sink.flush();
    ASSERT_TRUE(stage.receives(1));
    EXPECT_NE(stage.inside.thread, std::this_thread::get_id());
    EXPECT_TRUE(stage.inside.signals_are_blocked);
}

TEST(ThreadedSink, TheThreadEndsWithTheSink)
{
    {
        Stage stage;
        stage.send(1);
        stage.sink.flush();
    }
    EXPECT_FALSE(has_sink_threads());
}

TEST(ThreadedSink, PropertiesAreThoseOfTheInnerSink)
{
    Stage stage;
    EXPECT_EQ(stage.sink.metadata_keys(), std::vector<std::string>{"region"});
    EXPECT_EQ(stage.sink.max_in_flight(), 1000u);
    EXPECT_TRUE(stage.sink.preserves_order());
    EXPECT_FALSE(stage.sink.next_poll_at());
}

TEST(ThreadedSink, TheThreadWakesUpWhenTheInnerSinkHasAResult)
{
    Stage stage;
    stage.inside.answers = false;
    stage.send(1);
    stage.sink.flush();
    ASSERT_TRUE(comes_true([&] { return stage.inside.sent_so_far().size() == 1; }));
    EXPECT_TRUE(stage.results.empty());
    stage.inside.answers = true;
    stage.inside.event_fd.notify();
    EXPECT_TRUE(stage.receives(1));
}

TEST(ThreadedSink, EventsWaitUntilTheInnerSinkCanSend)
{
    Stage stage;
    stage.inside.can_send = false;
    for (std::int64_t id = 1; id <= 600; ++id)
        stage.send(id);
    stage.sink.flush();
    std::this_thread::sleep_for(20ms);
    EXPECT_TRUE(stage.inside.sent_so_far().empty());
    stage.inside.can_send = true;
    stage.inside.event_fd.notify();
    EXPECT_TRUE(stage.receives(600));
}

TEST(ThreadedSink, CancelAllReleasesTheEvents)
{
    Stage stage;
    for (std::int64_t round = 0; round < 200; ++round) {
        for (std::int64_t id = 1; id <= 300; ++id)
            stage.send(round * 1000 + id);
        stage.sink.flush();
        stage.send(round * 1000 + 999); // never flushed
        stage.sink.cancel_all();
        stage.events.clear(); // a sanitizer reports an access by the thread after this
    }
    EXPECT_EQ(stage.inside.cancelled, 200);
    stage.results.clear();
    stage.sink.poll(stage.results);
    EXPECT_TRUE(stage.results.empty());
    stage.send(1);
    stage.sink.flush();
    ASSERT_TRUE(stage.receives(1));
    EXPECT_EQ(stage.results.front().request_id, 1u);
}

TEST(ThreadedSink, PollRethrowsExceptionsOfTheThread)
{
    Stage stage;
    stage.inside.fails = true;
    stage.send(1);
    stage.sink.flush();
    EXPECT_THROW((void)stage.receives(1), std::runtime_error);
    stage.sink.cancel_all(); // does not wait for the thread, which has ended
}

TEST(ThreadedSink, StatusMessageAndLogLinesArePassedOn)
{
    Stage stage;
    {
        const std::lock_guard lock(stage.inside.mutex);
        stage.inside.status_message = "nobody is there";
        stage.inside.log_lines = {"one", "two"};
    }
    stage.inside.event_fd.notify();
    pollfd fd = {stage.sink.wait_fd(), POLLIN, 0};
    EXPECT_EQ(poll(&fd, 1, 5000), 1);
    EXPECT_EQ(stage.sink.status_message(), "nobody is there");
    EXPECT_EQ(stage.sink.take_log_lines(), (std::vector<std::string>{"one", "two"}));
    EXPECT_TRUE(stage.sink.take_log_lines().empty());
}

// The Kafka sink may have begun a new session after stream_of() was called.
TEST(ThreadedSink, AnEventForAnotherStreamIsNotSent)
{
    Cluster cluster;
    ThreadedSink sink(
        std::make_unique<KafkaSink>(config_for(cluster), Secrets::parse(""), SinkContext{}));
    const Event event = make_event(1);
    const Event* events[] = {&event};
    const StreamId stream = sink.stream_of(event);
    EXPECT_FALSE(sink.send(1, events, stream + 2));
    EXPECT_FALSE(sink.send(2, events, stream));
    sink.flush();
    std::vector<DeliveryResult> results;
    ASSERT_TRUE(comes_true([&] {
        sink.poll(results);
        return results.size() == 2;
    }));
    EXPECT_EQ(results[0].request_id, 1u);
    EXPECT_EQ(results[0].status, DeliveryStatus::not_sent);
    EXPECT_EQ(results[1].status, DeliveryStatus::delivered);
    EXPECT_EQ(cluster.read_values(), numbers(1, 1));
}

// The event pool reuses delivered events. If the thread still read one of them, a sanitizer would
// report it, and a payload below would be wrong.
TEST(ThreadedSink, AnEventIsReusedOnlyWhenTheThreadHasReleasedIt)
{
    constexpr std::int64_t count = 20'000;
    Inside inside;
    PipelinedDispatcher dispatcher(
        std::make_unique<ThreadedSink>(std::make_unique<PlainSink>(inside)), true,
        {10, 0, 20'000, 20'000, 0}, [] { return 0.0; });
    std::set<const Event*> places;
    int used_again = 0;
    std::int64_t next = 1;
    for (const TimePoint end = Clock::now() + max_test_wait;
         dispatcher.delivered() < count && Clock::now() < end;) {
        for (; next <= count && dispatcher.claimed() < 900; ++next) {
            std::unique_ptr<Event> event = dispatcher.event_pool().acquire();
            used_again += places.insert(event.get()).second ? 0 : 1;
            event->id = next;
            event->aggregate_id = std::to_string(next);
            event->payload = "the payload of " + std::to_string(next);
            dispatcher.add(std::move(event));
        }
        dispatcher.poll(Clock::now());
    }
    EXPECT_EQ(dispatcher.delivered(), static_cast<std::uint64_t>(count));
    EXPECT_GT(used_again, 100);
    const std::lock_guard lock(inside.mutex);
    for (std::size_t i = 0; i < inside.sent.size(); ++i)
        ASSERT_EQ(inside.payloads[i], "the payload of " + std::to_string(inside.sent[i]));
}

} // namespace
