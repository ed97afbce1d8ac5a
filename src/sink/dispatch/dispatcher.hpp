// Decides which claimed events a sink sends when: it keeps the order of each aggregate, backs off
// while the sink is unavailable, and records the result of each event for the relay to settle. How
// many events of an aggregate may be in flight depends on the sink: one request in
// serial_dispatcher.hpp, many in pipelined_dispatcher.hpp.
#pragma once

#include "core/retry_policy.hpp"
#include "sink/dispatch/event_pool.hpp"
#include "sink/interface/sink.hpp"

#include <algorithm>
#include <functional>
#include <memory>

namespace outbox::sink {

// Identifies a claimed event: fencing token of its batch and position in the log.
struct EventRef {
    std::int64_t token;
    std::int64_t id;
};

// Final result of an event, which the relay has to write to the tables.
struct SettledEvent {
    EventRef ref;
    bool delivered;             // false: rejected
    std::string reason;         // why the event was rejected
    std::uint64_t ordering_key; // identifies its queue
    EventStats event_stats;
};

// Base of both dispatchers. Owns the sink and all claimed events. Plain C++ without access to the
// server: the relay's sink task commits the results.
class Dispatcher {
public:
    // Returns a random number in [0, 1), which shortens a back-off.
    using JitterSource = std::function<double()>;

    Dispatcher(const Dispatcher&) = delete;
    Dispatcher& operator=(const Dispatcher&) = delete;
    virtual ~Dispatcher() = default;

    // Queues a claimed event; the events of an aggregate must come in the order of the log.
    virtual void add(std::unique_ptr<Event> event) = 0;

    // Pool of settled events, from which the relay should make the events for add().
    EventPool& event_pool() { return event_pool_; }

    // Applies the results that the sink has: appends to settled(), begins or ends the back-off.
    // Then sends as much as back-off, order and max_in_flight() allow, and flushes the sink.
    void poll(TimePoint now);

    // Sends without polling while the relay still adds events. Does nothing if requests hold
    // several events: they should wait for the events to come. The sink transmits the requests at
    // the next poll() at the latest.
    void send_unless_batching(TimePoint now);

    // Results in the order in which they came, which the relay has not committed yet.
    const std::vector<SettledEvent>& settled() const { return settled_; }

    // Removes the first `count` results: the relay has committed them.
    void forget_settled(std::size_t count);

    // Returns the events left in the queue of a rejected event, all of them behind it. Removes
    // none.
    virtual std::vector<EventRef> events_behind(const SettledEvent& rejected) const = 0;

    // Unblocks the queue of a rejected event. The events of `blocked_ids` wait in outbox_retries
    // from now on and are removed.
    virtual void resume_behind(const SettledEvent& rejected,
                               std::span<const std::int64_t> blocked_ids) = 0;

    // Removes the events and results of a batch whose lease is lost. Events of the batch that are
    // in flight are removed when their result is known; the result is ignored. Unblocks queues that
    // only a removed result blocked.
    virtual void drop_batch(std::int64_t token) = 0;

    // Stops sending for good; results of requests in flight still come in.
    void stop_sending() { sending_stopped_ = true; }

    // Drops all events, requests and results, also those of the sink, and empties the pool. Whether
    // requests in flight arrive is unknown. The back-off and all counts since the start remain.
    void cancel_all();

    // Pass-through to the sink; next_poll_at() includes the end of the back-off.
    std::vector<std::string> metadata_keys() const { return sink_->metadata_keys(); }
    int wait_fd() const { return sink_->wait_fd(); }
    std::optional<TimePoint> next_poll_at() const;
    std::string status_message() const { return sink_->status_message(); }
    std::vector<std::string> take_log_lines() { return sink_->take_log_lines(); }
    bool has_aborted() const { return sink_->has_aborted(); }

    std::size_t claimed() const { return claimed_; }     // events held, queued or in flight
    std::size_t in_flight() const { return in_flight_; } // requests
    std::size_t claimed_bytes() const { return claimed_bytes_; }

    // Returns true if the relay should claim more events.
    bool can_take_more(TimePoint now) const
    {
        return !endpoint_gone_ && !is_backing_off(now) && needs_more();
    }

    // Number of events that the relay should claim at a time.
    virtual std::size_t claim_size() const = 0;

    // State of the back-off, and counts since the start, for the relay and for operators.
    bool is_backing_off(TimePoint now) const { return now < resume_at(); }
    TimePoint resume_at() const { return std::max(resume_at_, retry_after_until_); }
    int consecutive_failures() const { return consecutive_failures_; }
    const std::string& last_error() const { return last_error_; }
    std::uint64_t delivered() const { return delivered_; }
    std::uint64_t rejected() const { return rejected_; }

    // Reason of a DeliveryStatus::endpoint_gone; std::nullopt: there was none.
    const std::optional<std::string>& endpoint_gone() const { return endpoint_gone_; }

protected:
    Dispatcher(std::unique_ptr<Sink> sink, bool ordered, const RetryPolicy& policy,
               JitterSource jitter);

    // Calls send_ready() and marks the sink for the flush in poll() if requests were sent.
    void send(TimePoint now);

    // Applies the result of a request to its events, queues and the back-off. Ignores the result of
    // an unknown request.
    virtual void on_result(const DeliveryResult& result, TimePoint now) = 0;

    // Sends while may_send() and events are ready. Returns true if it sent any.
    virtual bool send_ready(TimePoint now) = 0;

    // Returns true if events are ready to be sent, regardless of the back-off.
    virtual bool has_sendable() const = 0;

    // Returns true if the events held are too few to keep the sink busy.
    virtual bool needs_more() const = 0;

    // Removes the queues and requests of the derived class; does not call the sink.
    virtual void clear_all() = 0;

    // Failures of one event, or of one request with several events.
    struct FailureHistory {
        int isolated_failures = 0; // failures between which other events were delivered
        bool has_failed = false;
        std::uint64_t delivered_at_failure = 0; // delivered_ at the last failure
    };

    // Initial history of an event; that of a retry has failures already.
    FailureHistory failure_history_of(const Event& event) const;

    // Adds a failure with may_be_event_fault to the history. Returns true if the event has failed
    // again and again while others were delivered: then the event is at fault, not the sink.
    bool is_poison(FailureHistory& failure_history) const;

    // Key of the event's queue: a hash of its aggregate, or its id if the sink is not ordered.
    std::uint64_t ordering_key_of(const Event& event) const;

    // Limit of requests in flight, which is small while the sink is unavailable.
    std::size_t max_in_flight_now() const;

    // Returns true if back-off, limits and the sink allow a request now.
    bool may_send(TimePoint now) const;

    // Sets last_error() and starts or prolongs the back-off, after an unavailable result of a
    // request sent at `sent_at`.
    void back_off(const DeliveryResult& result, TimePoint sent_at, TimePoint now);

    // Ends the back-off after a delivery, but not a Retry-After of the receiver.
    void end_back_off();

    // Adds an event to claimed() and claimed_bytes().
    void account(std::size_t bytes);

    // Undoes account() and returns the event to the pool. The last release empties the pool.
    void release(std::unique_ptr<Event> event, std::size_t bytes);

    // Appends a result to settled(), for the sink task to commit. Changes no queue.
    void record_settled(const EventRef& ref, std::uint64_t ordering_key, bool delivered,
                        const std::string& reason, const EventStats& event_stats);

    EventPool event_pool_;
    std::unique_ptr<Sink> sink_;
    bool ordered_; // the sink keeps the order of each aggregate
    RetryPolicy policy_;
    JitterSource jitter_;
    std::size_t claimed_ = 0;   // events
    std::size_t in_flight_ = 0; // requests
    std::size_t claimed_bytes_ = 0;
    std::vector<SettledEvent> settled_;
    int consecutive_failures_ = 0; // back-offs since the last delivery
    std::string last_error_;
    std::uint64_t delivered_ = 0;
    std::uint64_t rejected_ = 0;
    std::optional<std::string> endpoint_gone_;

private:
    std::vector<DeliveryResult> results_; // of the current poll(), kept for its memory
    TimePoint resume_at_{};               // end of the back-off
    TimePoint retry_after_until_{};       // end of a Retry-After; a delivery does not end it
    TimePoint backed_off_at_{};           // start of the latest back-off
    bool needs_flush_ = false;            // requests were sent since the last flush()
    bool sending_stopped_ = false;
};

// Makes a PipelinedDispatcher if the sink preserves order, otherwise a SerialDispatcher.
std::unique_ptr<Dispatcher> make_dispatcher(std::unique_ptr<Sink> sink, bool ordered,
                                            const RetryPolicy& policy,
                                            Dispatcher::JitterSource jitter);

} // namespace outbox::sink
