// A sink: brings events to where they are wanted. Nothing in here knows of the server, and nothing
// blocks: what takes time goes on by itself, and poll() picks up what has come of it.
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

// Events that travel together: one, where the sink does not take more.
using RequestId = std::uint64_t;

// Within one of these a sink keeps the order of what it is sent.
using StreamId = std::uint64_t;

// What has come of a request.
struct DeliveryResult {
    RequestId request_id;
    DeliveryStatus status;
    std::string reason; // for people: what the receiver said
    std::optional<std::chrono::seconds> retry_after;

    // Trouble that one event can bring about by itself, such as an error inside the receiver.
    bool may_be_event_fault = false;
};

class Sink {
public:
    Sink() = default;
    Sink(const Sink&) = delete;
    Sink& operator=(const Sink&) = delete;
    virtual ~Sink() = default;

    // Readable when poll() has something to do.
    virtual int wait_fd() const = 0;

    // When poll() is to be called even if the descriptor is silent.
    virtual std::optional<TimePoint> next_poll_at() const = 0;

    // Keys of an event's metadata that it wants to see as attributes.
    virtual std::vector<std::string> metadata_keys() const = 0;

    // How many requests may be on the way at once, and how many events one can hold.
    virtual std::size_t max_in_flight() const = 0;
    virtual std::size_t max_events_per_request() const = 0;

    // Does it deliver what it was sent, for each aggregate, in that order, and nothing behind an
    // event that it did not deliver? Then many of an aggregate may be on the way at once, each in a
    // request of its own. But only within a stream, and not before one of them was delivered there.
    // Streams come to an end at any time, also between this answer and send().
    virtual bool preserves_order() const { return false; }
    virtual StreamId stream_of(const Event&) const { return 0; }

    // False while it takes nothing for a moment.
    virtual bool can_send() const { return true; }

    // The events stay where they are until the outcome is known, which may be at once, or until
    // cancel_all() is called: a thread of the sink's may be reading them. Not more requests than
    // the capacity. They go out in this stream, as stream_of() said, or come back.
    virtual std::optional<DeliveryResult>
    send(RequestId request_id, std::span<const Event* const> events, StreamId stream) = 0;

    // What was sent goes out now, and not only when poll() is called.
    virtual void flush() = 0;

    // Goes on with what is on the way, and adds what has come of it.
    virtual void poll(std::vector<DeliveryResult>& results) = 0;

    // Forgets everything that is on the way: whether it arrives is open.
    virtual void cancel_all() = 0;

    // What is wrong although nothing has failed: a receiver that is away, say.
    virtual std::string status_message() const { return {}; }

    // A thread of the library behind it has failed, wherever it was: nothing of the sink may be
    // called any more, nor may it be destroyed.
    virtual bool has_aborted() const { return false; }

    // Lines that the library behind it has for the log.
    virtual std::vector<std::string> take_log_lines() { return {}; }
};

} // namespace outbox::sink
