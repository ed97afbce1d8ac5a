// outbox_test_sink(): somebody asks, through shared memory, and the relay sends a made-up event.
#pragma once

#include "relay/sink_definitions.hpp"
#include "sink/make_sink.hpp"

namespace outbox {

// Which sink somebody is waiting to see tested. Who was interrupted may ask again, when the sink is
// another, and what came of the first question is no answer to the second: each has its number.
struct SinkTestRequest {
    int32 consumer;
    uint64 number;
};

// The relay's side. One question at a time.
class SinkTest {
public:
    // Nothing if no one asks.
    static std::optional<SinkTestRequest> pending_request();

    // Sends the event.
    SinkTest(const SinkTestRequest& request, std::unique_ptr<sink::Sink> sink);

    int wait_fd() const { return sink_->wait_fd(); }
    std::optional<sink::TimePoint> next_poll_at() const { return sink_->next_poll_at(); }

    // True when the question is answered.
    bool poll();

    bool has_aborted() const { return sink_->has_aborted(); }
    const SinkTestRequest& request() const { return request_; }

    // An answer without a sink.
    static void respond(const SinkTestRequest& request, bool ok, std::string_view detail);

private:
    SinkTestRequest request_;
    sink::Event event_; // outlives the sink, which may be reading it
    std::unique_ptr<sink::Sink> sink_;
    std::vector<sink::DeliveryResult> results_;
};

void set_up_sink_tests();

} // namespace outbox
