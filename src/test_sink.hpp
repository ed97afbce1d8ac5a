// outbox_test_sink(): somebody asks, through shared memory, and the relay sends a made-up event.
#pragma once

#include "sink/factory.hpp"
#include "sinks.hpp"

namespace outbox {

// The relay's side. One question at a time.
class SinkTest {
public:
    // Which sink is somebody waiting to see tested? Nothing if no one asks.
    static std::optional<int32> question();

    // Sends the event.
    SinkTest(int32 consumer, std::unique_ptr<sink::Sink> sink);

    int descriptor() const { return sink_->descriptor(); }
    std::optional<sink::TimePoint> next_work() const { return sink_->next_work(); }

    // True when the question is answered.
    bool work();

    // An answer without a sink.
    static void answer(int32 consumer, bool ok, std::string_view detail);

private:
    int32 consumer_;
    sink::Event event_; // outlives the sink, which may be reading it
    std::unique_ptr<sink::Sink> sink_;
    std::vector<sink::Outcome> outcomes_;
};

void set_up_sink_tests();

} // namespace outbox
