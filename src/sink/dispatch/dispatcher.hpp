// Decides what a sink is given, and when: nothing while the sink is in trouble, the events of an
// aggregate in their order where order matters, and what is said of each event in the end. How many
// of an aggregate may be on the way depends on the sink: lane_courier.hpp, stream_courier.hpp.
#pragma once

#include "core/retry_policy.hpp"
#include "sink/dispatch/event_pool.hpp"
#include "sink/interface/sink.hpp"

#include <algorithm>
#include <functional>
#include <memory>

namespace outbox::sink {

// An event in the hands of the relay: its batch and its place in the log.
struct Handle {
    std::int64_t token;
    std::int64_t id;
};

struct SettledEvent {
    Handle handle;
    bool delivered; // otherwise rejected
    std::string reason;
    std::uint64_t lane;
    EventStats tally;
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
    EventPool& event_pool() { return spare_events_; }

    // Collects what has come of what is on the way, and sends what may be sent.
    void work(TimePoint now);

    // Sends what may be sent while others are still being added, unless events travel together:
    // then they had better wait for these. It goes out with the next work() at the latest.
    void send_early(TimePoint now);

    // What is to be written down. The relay takes it, and says when that has happened.
    const std::vector<SettledEvent>& settled() const { return settled_; }
    void forget_settled(std::size_t count);

    // What waits behind a rejected event; and what becomes of that: those that are parked wait
    // elsewhere from now on, the others go on.
    virtual std::vector<Handle> behind(const SettledEvent& rejected) const = 0;
    virtual void resume_behind(const SettledEvent& rejected,
                               std::span<const std::int64_t> parked_ids) = 0;

    // The lease of this batch is lost: nothing of it is to be sent any more.
    virtual void drop_batch(std::int64_t token) = 0;

    // Sends nothing more.
    void finish() { finished_ = true; }

    // Gives up everything: whether it arrives is open.
    void abandon();

    std::vector<std::string> metadata() const { return sink_->metadata(); }
    int descriptor() const { return sink_->descriptor(); }
    std::optional<TimePoint> next_work() const;
    std::string status_message() const { return sink_->status_message(); }
    std::vector<std::string> take_log_lines() { return sink_->take_log_lines(); }
    bool is_broken() const { return sink_->is_broken(); }

    std::size_t in_hand() const { return in_hand_; }
    std::size_t on_the_way() const { return on_the_way_; }
    std::size_t bytes() const { return bytes_; }

    // Is more wanted than what is in hand, and how much at once?
    bool can_take_more(TimePoint now) const
    {
        return !gone_ && !is_backing_off(now) && needs_more();
    }
    virtual std::size_t wanted() const = 0;

    bool is_backing_off(TimePoint now) const { return now < resume_at(); }
    TimePoint resume_at() const { return std::max(resume_at_, asked_to_wait_); }
    int troubles() const { return troubles_; }
    const std::string& last_trouble() const { return last_trouble_; }
    std::uint64_t delivered() const { return delivered_; }
    std::uint64_t rejected() const { return rejected_; }

    // The sink says that there is nobody any more.
    const std::optional<std::string>& gone() const { return gone_; }

protected:
    Dispatcher(std::unique_ptr<Sink> sink, bool ordered, const RetryPolicy& policy,
               JitterSource chance);

    void send(TimePoint now);

    // What came of a parcel.
    virtual void arrive(const Outcome& outcome, TimePoint now) = 0;

    // Sends as long as it may; true if it sent anything.
    virtual bool send_some(TimePoint now) = 0;

    // Is there anything that could be sent, if only it were allowed?
    virtual bool has_something_to_send() const = 0;
    virtual bool needs_more() const = 0;
    virtual void forget_all() = 0;

    // How often something failed while others succeeded.
    struct FailureHistory {
        int blame = 0;
        bool has_failed = false; // when so many had been delivered:
        std::uint64_t delivered_before = 0;
    };

    // One that has failed before is under suspicion.
    FailureHistory failure_history_of(const Event& event) const;

    // It has met trouble that may be its own. Has it been so again and again, while others succeed?
    // Then it is no trouble of the sink's.
    bool is_poison(FailureHistory& failure_history) const;

    // Aggregates, or single events where order does not matter.
    std::uint64_t lane_of(const Event& event) const;

    std::size_t may_be_on_the_way() const;
    bool may_send(TimePoint now) const;
    void back_off(const Outcome& outcome, TimePoint sent_at, TimePoint now);
    void succeed();
    void take_in(std::size_t bytes);
    void let_go(std::unique_ptr<Event> event, std::size_t bytes);
    void settle(const Handle& handle, std::uint64_t lane, bool delivered, const std::string& reason,
                const EventStats& tally);

    EventPool spare_events_;
    std::unique_ptr<Sink> sink_;
    bool ordered_;
    RetryPolicy policy_;
    JitterSource chance_;
    std::size_t in_hand_ = 0;
    std::size_t on_the_way_ = 0; // parcels
    std::size_t bytes_ = 0;
    std::vector<SettledEvent> settled_;
    int troubles_ = 0; // in a row
    std::string last_trouble_;
    std::uint64_t delivered_ = 0;
    std::uint64_t rejected_ = 0;
    std::optional<std::string> gone_;

private:
    std::vector<Outcome> outcomes_;
    TimePoint resume_at_{};
    TimePoint asked_to_wait_{}; // by the receiver, whatever else succeeds
    TimePoint backed_off_at_{};
    bool is_to_start_ = false; // the sink, with what it was sent
    bool finished_ = false;
};

// The one that suits the sink.
std::unique_ptr<Dispatcher> make_dispatcher(std::unique_ptr<Sink> sink, bool ordered,
                                            const RetryPolicy& policy,
                                            Dispatcher::JitterSource chance);

} // namespace outbox::sink
