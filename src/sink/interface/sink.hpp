// Interface of a sink, a destination of the relay. A sink knows nothing of the server and never
// blocks: requests are in flight in the background, and poll() collects their results.
#pragma once

#include "sink/interface/delivery_result.hpp"
#include "sink/interface/event.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace outbox::sink {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

// Number of a request, chosen by the caller of send(). A request is one HTTP request or one Kafka
// record; it has one event unless max_events_per_request() is larger.
using RequestId = std::uint64_t;

// Number of a stream, the scope within which a sink preserves order: see preserves_order().
using StreamId = std::uint64_t;

// Result of one request.
struct DeliveryResult {
    RequestId request_id;
    DeliveryStatus status;
    std::string reason; // for operators: the response, without secrets, on one line
    std::optional<std::chrono::seconds> retry_after; // delay that the receiver asked for

    // The status is unavailable, but a single event can cause this failure, for example HTTP 500.
    bool may_be_event_fault = false;
};

// One destination. One thread calls all functions, except that ThreadedSink calls stream_of() and
// has_aborted() of the sink that it wraps from the relay's thread as well.
class Sink {
public:
    Sink() = default;
    Sink(const Sink&) = delete;
    Sink& operator=(const Sink&) = delete;
    virtual ~Sink() = default;

    // Descriptor for the relay's wait set; readable when poll() has work.
    virtual int wait_fd() const = 0;

    // Time at which poll() must be called even if wait_fd() is not readable; std::nullopt: none.
    virtual std::optional<TimePoint> next_poll_at() const = 0;

    // Metadata keys that the relay must copy to Event::attributes.
    virtual std::vector<std::string> metadata_keys() const = 0;

    // Limits: requests in flight at once, and events in one request.
    virtual std::size_t max_in_flight() const = 0;
    virtual std::size_t max_events_per_request() const = 0;

    // Returns true if the sink delivers the events of each aggregate in the order of send(), and
    // none behind an event that it did not deliver. Many events of an aggregate may then be in
    // flight, each in a request of its own, but only within one stream, and only after one event
    // of the aggregate was delivered in that stream.
    virtual bool preserves_order() const { return false; }

    // Current stream of the event. A stream can end at any time, also between this call and send().
    virtual StreamId stream_of(const Event&) const { return 0; }

    // Returns false while the sink accepts no requests, for example while it ends a session.
    virtual bool can_send() const { return true; }

    // Starts a request. Returns its result if that is known at once; otherwise poll() adds it. The
    // events must stay at their addresses until the result is there or cancel_all() has returned,
    // because a thread of the sink may read them. At most max_in_flight() requests may be in
    // flight. If `stream` has ended, the result is not_sent.
    virtual std::optional<DeliveryResult>
    send(RequestId request_id, std::span<const Event* const> events, StreamId stream) = 0;

    // Starts the transmission of the requests now instead of at the next poll().
    virtual void flush() = 0;

    // Drives the requests in flight without blocking and appends the results of finished ones.
    virtual void poll(std::vector<DeliveryResult>& results) = 0;

    // Drops all requests in flight; they get no results. Whether they arrive is unknown.
    virtual void cancel_all() = 0;

    // A problem while no request has failed yet, such as unreachable brokers; empty: none.
    virtual std::string status_message() const { return {}; }

    // Returns true if a thread of the sink's library called abort(). No other function of the sink
    // may be called then, and the sink must be leaked: a lock of that thread is never released.
    virtual bool has_aborted() const { return false; }

    // Removes and returns lines of the library for the server log.
    virtual std::vector<std::string> take_log_lines() { return {}; }
};

} // namespace outbox::sink
