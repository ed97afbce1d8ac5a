// Decides what a sink is given, and when: nothing while the sink is in trouble, the events of an
// aggregate in their order where order matters, and what is said of each event in the end. How many
// of an aggregate may be on the way depends on the sink: serial_dispatcher.hpp,
// pipelined_dispatcher.hpp.
#pragma once

#include "core/retry_policy.hpp"
#include "sink/dispatch/event_pool.hpp"
#include "sink/interface/sink.hpp"

#include <algorithm>
#include <functional>
#include <memory>

namespace outbox::sink {

// An event in the hands of the relay: its batch and its place in the log.
struct EventRef {
    std::int64_t token;
    std::int64_t id;
};

struct SettledEvent {
    EventRef ref;
    bool delivered; // otherwise rejected
    std::string reason;
    std::uint64_t ordering_key;
    EventStats event_stats;
};

class Dispatcher {
public:
    // In [0, 1).
    using JitterSource = std::function<double()>;

    Dispatcher(const Dispatcher&) = delete;
    Dispatcher& operator=(const Dispatcher&) = delete;
    virtual ~Dispatcher() = default;

    // Takes an event; those of an aggregate in their order. The best ones to take are made from
    // those that are done with.
    virtual void add(std::unique_ptr<Event> event) = 0;
    EventPool& event_pool() { return event_pool_; }

    // Collects what has come of what is on the way, and sends what may be sent.
    void poll(TimePoint now);

    // Sends what may be sent while others are still being added, unless events travel together:
    // then they had better wait for these. It goes out with the next poll() at the latest.
    void send_unless_batching(TimePoint now);

    // What is to be written down. The relay takes it, and says when that has happened.
    const std::vector<SettledEvent>& settled() const { return settled_; }
    void forget_settled(std::size_t count);

    // What waits behind a rejected event; and what becomes of that: those that are parked wait
    // elsewhere from now on, the others go on.
    virtual std::vector<EventRef> events_behind(const SettledEvent& rejected) const = 0;
    virtual void resume_behind(const SettledEvent& rejected,
                               std::span<const std::int64_t> blocked_ids) = 0;

    // The lease of this batch is lost: nothing of it is to be sent any more.
    virtual void drop_batch(std::int64_t token) = 0;

    // Sends nothing more.
    void stop_sending() { sending_stopped_ = true; }

    // Gives up everything: whether it arrives is open.
    void cancel_all();

    std::vector<std::string> metadata_keys() const { return sink_->metadata_keys(); }
    int wait_fd() const { return sink_->wait_fd(); }
    std::optional<TimePoint> next_poll_at() const;
    std::string status_message() const { return sink_->status_message(); }
    std::vector<std::string> take_log_lines() { return sink_->take_log_lines(); }
    bool has_aborted() const { return sink_->has_aborted(); }

    std::size_t claimed() const { return claimed_; }
    std::size_t in_flight() const { return in_flight_; }
    std::size_t claimed_bytes() const { return claimed_bytes_; }

    // Is more wanted than what is in hand, and how much at once?
    bool can_take_more(TimePoint now) const
    {
        return !endpoint_gone_ && !is_backing_off(now) && needs_more();
    }
    virtual std::size_t claim_size() const = 0;

    bool is_backing_off(TimePoint now) const { return now < resume_at(); }
    TimePoint resume_at() const { return std::max(resume_at_, retry_after_until_); }
    int consecutive_failures() const { return consecutive_failures_; }
    const std::string& last_error() const { return last_error_; }
    std::uint64_t delivered() const { return delivered_; }
    std::uint64_t rejected() const { return rejected_; }

    // The sink says that there is nobody any more.
    const std::optional<std::string>& endpoint_gone() const { return endpoint_gone_; }

protected:
    Dispatcher(std::unique_ptr<Sink> sink, bool ordered, const RetryPolicy& policy,
               JitterSource jitter);

    void send(TimePoint now);

    // What came of a request.
    virtual void on_result(const DeliveryResult& result, TimePoint now) = 0;

    // Sends as long as it may; true if it sent anything.
    virtual bool send_ready(TimePoint now) = 0;

    // Is there anything that could be sent, if only it were allowed?
    virtual bool has_sendable() const = 0;
    virtual bool needs_more() const = 0;
    virtual void clear_all() = 0;

    // How often something failed while others succeeded.
    struct FailureHistory {
        int isolated_failures = 0;
        bool has_failed = false; // when so many had been delivered:
        std::uint64_t delivered_at_failure = 0;
    };

    // One that has failed before is under suspicion.
    FailureHistory failure_history_of(const Event& event) const;

    // It has met trouble that may be its own. Has it been so again and again, while others succeed?
    // Then it is no trouble of the sink's.
    bool is_poison(FailureHistory& failure_history) const;

    // Aggregates, or single events where order does not matter.
    std::uint64_t ordering_key_of(const Event& event) const;

    std::size_t max_in_flight_now() const;
    bool may_send(TimePoint now) const;
    void back_off(const DeliveryResult& result, TimePoint sent_at, TimePoint now);
    void end_back_off();
    void account(std::size_t bytes);
    void release(std::unique_ptr<Event> event, std::size_t bytes);
    void record_settled(const EventRef& ref, std::uint64_t ordering_key, bool delivered,
                        const std::string& reason, const EventStats& event_stats);

    EventPool event_pool_;
    std::unique_ptr<Sink> sink_;
    bool ordered_;
    RetryPolicy policy_;
    JitterSource jitter_;
    std::size_t claimed_ = 0;
    std::size_t in_flight_ = 0; // requests
    std::size_t claimed_bytes_ = 0;
    std::vector<SettledEvent> settled_;
    int consecutive_failures_ = 0; // in a row
    std::string last_error_;
    std::uint64_t delivered_ = 0;
    std::uint64_t rejected_ = 0;
    std::optional<std::string> endpoint_gone_;

private:
    std::vector<DeliveryResult> results_;
    TimePoint resume_at_{};
    TimePoint retry_after_until_{}; // by the receiver, whatever else succeeds
    TimePoint backed_off_at_{};
    bool needs_flush_ = false; // the sink, with what it was sent
    bool sending_stopped_ = false;
};

// The one that suits the sink.
std::unique_ptr<Dispatcher> make_dispatcher(std::unique_ptr<Sink> sink, bool ordered,
                                            const RetryPolicy& policy,
                                            Dispatcher::JitterSource jitter);

} // namespace outbox::sink
