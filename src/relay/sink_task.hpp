// One sink in the relay. The task claims and settles in short transactions; its dispatcher sends
// and receives between them, with no transaction open.
#pragma once

#include "claim/claim.hpp"
#include "extension/worker_transaction.hpp"
#include "relay/sink_definitions.hpp"
#include "relay/sink_event_builder.hpp"
#include "relay/sink_status_reporter.hpp"
#include "relay/transaction_plan.hpp"
#include "sink/dispatch/dispatcher.hpp"

namespace outbox {

// State of one sink: dispatcher, open batches and timers. Throws if the dispatcher cannot be made.
class SinkTask {
public:
    SinkTask(SinkDefinition definition, std::unique_ptr<sink::Sink> sink);

    const SinkDefinition& definition() const { return definition_; }
    void set_types(const EventTypeBloom& types) { definition_.types = types; }
    const char* name() const { return definition_.name.c_str(); }

    // The descriptor that becomes readable when the sink has results.
    int wait_fd() const { return dispatcher_->wait_fd(); }

    // Lets the next round claim: a commit may have added messages.
    void wake() { may_have_messages_ = true; }
    // Discards the cached state of the consumer, and lets the next round claim and check retries.
    void invalidate_cache();

    // One round: takes results of requests, settles them, claims the next batch, sends it,
    // publishes the sink's status. `memory` limits the bytes of claimed events. An error of a
    // transaction is logged and pauses the task.
    void run_once(std::size_t memory);

    // Returns when run_once() must be called even if no wake-up arrives.
    sink::TimePoint next_run_at() const;

    // Settles recorded results, releases open batches, ignores requests in flight from then on, and
    // removes the sink's status from shared memory.
    void close();

    // Returns the reason to pause the sink, if the endpoint said that it is gone (HTTP 410).
    const std::optional<std::string>& pause_reason() const { return dispatcher_->endpoint_gone(); }

    // Returns true if a thread of the sink's library has aborted: neither call nor destroy the
    // task.
    bool has_aborted() const { return dispatcher_->has_aborted(); }

    // For shutdown: sends nothing more, while results of requests in flight still arrive.
    void stop_sending() { dispatcher_->stop_sending(); }
    // Returns true if no request is in flight.
    bool is_drained() const { return dispatcher_->in_flight() == 0; }
    // Takes results of requests without starting a transaction.
    void poll() { dispatcher_->poll(sink::Clock::now()); }

private:
    // Collects what the next transaction is to do: settle the recorded results if `settles`, claim
    // and check retries if `claims`, and always renew the leases that are due. Writes nothing.
    TransactionPlan make_plan(sink::TimePoint now, bool settles, bool claims) const;
    // Returns whether recorded results are to be settled: enough of them, one rejected, or time is
    // up.
    bool should_settle(sink::TimePoint now) const;
    bool should_claim(sink::TimePoint now, std::size_t memory) const;
    bool should_renew(sink::TimePoint now) const;
    bool should_release_batches(sink::TimePoint now) const;

    // Runs a transaction by make_plan(); after its commit updates the task and sends what it has
    // claimed.
    void run_transaction(sink::TimePoint now, bool settles, bool claims, std::size_t memory);
    // Claims the next batch into `sink_events`, in the open transaction, with upcasting.
    ClaimResult claim_next(const TransactionPlan& plan, bool may_defer_write,
                           SinkEventBuilder& sink_events) const;
    void write_deferred_batch(sink::TimePoint now);
    // Removes what the transaction has settled from dispatcher and batches_, and sets renewed
    // leases.
    void apply_committed(const TransactionPlan& plan, sink::TimePoint now);
    // Adds the claimed events to batches_ and the dispatcher, which sends them.
    void send(SinkEventBuilder& sink_events, sink::TimePoint now);
    // Subtracts events whose settlement is committed from an open batch. At 0 forgets the batch and
    // keeps its token in settled_batches_ for the next claim. Ignores a batch that was lost.
    void count_settled(int64 token, std::size_t count);
    // Drops lost batches after an error about a token; logs any other error and sets retry_at_.
    void handle_rollback(const Rollback& rollback, sink::TimePoint now);
    void drop_lost_batches();
    // Settles recorded results and releases open batches in one transaction, whose error is only
    // logged. Then cancels all requests and forgets the batches.
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
    sink::TimePoint claim_at_{};        // no claim before
    sink::TimePoint settle_by_ = never; // results are settled no later
    sink::TimePoint flush_by_ = never;  // the last commit is flushed no later
    sink::TimePoint retry_at_{};        // no transaction before, after a failed one
    std::string transaction_error_;     // of the last transaction, if it failed
    SinkStatusReporter status_reporter_;

    static constexpr sink::TimePoint never = sink::TimePoint::max();
};

} // namespace outbox
