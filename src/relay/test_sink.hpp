// outbox_test_sink(): somebody asks, through shared memory, and the relay sends a made-up event.
#pragma once

#include "relay/sink_definitions.hpp"
#include "sink/make_sink.hpp"

namespace outbox {

// Which sink somebody is waiting to see tested. Who was interrupted may ask again, when the sink is
// another, and what came of the first question is no answer to the second: each has its number.
struct TestQuestion {
    int32 consumer;
    uint64 number;
};

// The relay's side. One question at a time.
class SinkTest {
public:
    // Nothing if no one asks.
    static std::optional<TestQuestion> question();

    // Sends the event.
    SinkTest(const TestQuestion& what, std::unique_ptr<sink::Sink> sink);

    int descriptor() const { return sink_->descriptor(); }
    std::optional<sink::TimePoint> next_work() const { return sink_->next_work(); }

    // True when the question is answered.
    bool work();

    bool is_broken() const { return sink_->is_broken(); }
    const TestQuestion& what() const { return what_; }

    // An answer without a sink.
    static void answer(const TestQuestion& what, bool ok, std::string_view detail);

private:
    TestQuestion what_;
    sink::Event event_; // outlives the sink, which may be reading it
    std::unique_ptr<sink::Sink> sink_;
    std::vector<sink::Outcome> outcomes_;
};

void set_up_sink_tests();

} // namespace outbox
