// A route: one sink of the relay, from the log to the receiver. Claims and settles in short
// transactions; in between, its dispatcher sends and listens, with no transaction open.
#pragma once

#include "claim/claim.hpp"
#include "extension/worker_transaction.hpp"
#include "relay/sink_definitions.hpp"
#include "relay/sink_event_builder.hpp"
#include "relay/sink_status_reporter.hpp"
#include "relay/transaction_plan.hpp"
#include "sink/dispatch/dispatcher.hpp"

namespace outbox {

class SinkTask {
public:
    SinkTask(SinkDefinition definition, std::unique_ptr<sink::Sink> sink);

    const SinkDefinition& definition() const { return definition_; }
    void set_types(const EventTypeBloom& types) { definition_.types = types; }
    const char* name() const { return definition_.name.c_str(); }
    int wait_fd() const { return dispatcher_->wait_fd(); }

    // There may be something new in the log, or something that was due.
    void wake() { may_have_messages_ = true; }
    // The same, and nothing that is remembered is to be relied on.
    void invalidate_cache();

    // One round: hears what has come of requests, writes it down, claims what comes next, sends it.
    // `memory` is how many bytes of events it may have in hand.
    void run_once(std::size_t memory);

    // When run_once() is to be called even if nothing happens.
    sink::TimePoint next_run_at() const;

    // Writes down what is known, and hands back the rest. Whatever is on the way is forgotten.
    void close();

    // Why the sink is to be paused, if it is.
    const std::optional<std::string>& pause_reason() const { return dispatcher_->endpoint_gone(); }

    // The sink must not be touched any more, and so this must not be closed.
    bool has_aborted() const { return dispatcher_->has_aborted(); }

    // No more requests: what is on the way may still arrive.
    void stop_sending() { dispatcher_->stop_sending(); }
    bool is_drained() const { return dispatcher_->in_flight() == 0; }
    void poll() { dispatcher_->poll(sink::Clock::now()); }

private:
    TransactionPlan make_plan(sink::TimePoint now, bool settles, bool claims) const;
    bool should_settle(sink::TimePoint now) const;
    bool should_claim(sink::TimePoint now, std::size_t memory) const;
    bool should_renew(sink::TimePoint now) const;
    bool should_release_batches(sink::TimePoint now) const;

    void run_transaction(sink::TimePoint now, bool settles, bool claims, std::size_t memory);
    ClaimResult claim_next(const TransactionPlan& plan, bool may_defer_write,
                           SinkEventBuilder& sink_events) const;
    void write_deferred_batch(sink::TimePoint now);
    void apply_committed(const TransactionPlan& plan, sink::TimePoint now);
    void send(SinkEventBuilder& sink_events, sink::TimePoint now);
    void count_settled(int64 token, std::size_t count);
    void handle_rollback(const Rollback& rollback, sink::TimePoint now);
    void drop_lost_batches();
    void release_batches();

    SinkDefinition definition_;
    std::string activity_;
    std::unique_ptr<sink::Dispatcher> dispatcher_;
    std::vector<std::string> metadata_keys_;
    OpenBatches batches_;
    std::vector<int64> settled_batches_; // batches that ended since the last claim
    mutable ConsumerStateCache state_cache_;
    std::size_t memory_limit_ = 0;
    bool may_have_messages_ = true;
    bool checks_retries_ = true;
    sink::TimePoint next_check_{};
    sink::TimePoint claim_at_{};        // not before
    sink::TimePoint settle_by_ = never; // something waits to be written down
    sink::TimePoint flush_by_ = never;  // the last commit
    sink::TimePoint retry_at_{};        // after a failed transaction
    std::string transaction_error_;     // of the last transaction, if it failed
    SinkStatusReporter status_reporter_;

    static constexpr sink::TimePoint never = sink::TimePoint::max();
};

} // namespace outbox
