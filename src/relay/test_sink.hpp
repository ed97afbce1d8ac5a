// outbox_test_sink(): a backend asks the relay, through shared memory under ipc::shmem_lock(), to
// send one test event to a sink.
#pragma once

#include "relay/sink_definitions.hpp"
#include "sink/make_sink.hpp"

namespace outbox {

// A request for a test. The number tells the result of a canceled request from that of the next
// one, which may be about another sink.
struct SinkTestRequest {
    int32 consumer;
    uint64 number;
};

// A test that the relay is running: at most one per database.
class SinkTest {
public:
    // Returns the request of this database that waits in shared memory, if any, and leaves it
    // there.
    static std::optional<SinkTestRequest> pending_request();

    // Sends the test event at once.
    SinkTest(const SinkTestRequest& request, std::unique_ptr<sink::Sink> sink);

    // As in sink::Sink, for the poll loop.
    int wait_fd() const { return sink_->wait_fd(); }
    std::optional<sink::TimePoint> next_poll_at() const { return sink_->next_poll_at(); }

    // Returns true once the result is known; then it has called respond().
    bool poll();

    // Returns true if a thread of the sink's library has aborted: do not destroy the test.
    bool has_aborted() const { return sink_->has_aborted(); }
    const SinkTestRequest& request() const { return request_; }

    // Writes the result of a request to shared memory and wakes the backend. Without effect if the
    // request is no longer there.
    static void respond(const SinkTestRequest& request, bool ok, std::string_view detail);

private:
    SinkTestRequest request_;
    sink::Event event_; // declared first: a thread of the sink may read it until the sink is gone
    std::unique_ptr<sink::Sink> sink_;
    std::vector<sink::DeliveryResult> results_;
};

// Requests the shared memory. Call once, in _PG_init() of a preloaded library.
void set_up_sink_tests();

} // namespace outbox
