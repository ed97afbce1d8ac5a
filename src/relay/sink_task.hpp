// A route: one sink of the relay, from the log to the receiver. Claims and settles in short
// transactions; in between, its courier sends and listens, with no transaction open.
#pragma once

#include "claim/claim.hpp"
#include "extension/worker_transaction.hpp"
#include "relay/sink_definitions.hpp"
#include "relay/sink_event_builder.hpp"
#include "relay/sink_status_reporter.hpp"
#include "sink/dispatch/dispatcher.hpp"

#include <map>

namespace outbox {

class SinkTask {
public:
    SinkTask(SinkDefinition definition, std::unique_ptr<sink::Sink> sink);

    const SinkDefinition& definition() const { return definition_; }
    void set_types(const TypeSet& types) { definition_.types = types; }
    const char* name() const { return definition_.name.c_str(); }
    int descriptor() const { return dispatcher_->descriptor(); }

    // There may be something new in the log, or something that was due.
    void look() { may_find_something_ = true; }
    // The same, and nothing that is remembered is to be relied on.
    void invalidate_cache();

    // One round: hears what has come of requests, writes it down, claims what comes next, sends it.
    // `memory` is how many bytes of events it may have in hand.
    void turn(std::size_t memory);

    // When turn() is to be called even if nothing happens.
    sink::TimePoint next_turn() const;

    // Writes down what is known, and hands back the rest. Whatever is on the way is forgotten.
    void close();

    // Why the sink is to be paused, if it is.
    const std::optional<std::string>& end() const { return dispatcher_->gone(); }

    // The sink must not be touched any more, and so this must not be closed.
    bool is_broken() const { return dispatcher_->is_broken(); }

    // No more requests: what is on the way may still arrive.
    void finish() { dispatcher_->finish(); }
    bool is_quiet() const { return dispatcher_->on_the_way() == 0; }
    void listen() { dispatcher_->work(sink::Clock::now()); }

private:
    // A batch in hand.
    struct Batch {
        std::size_t left; // events that are not settled in the tables
        sink::TimePoint renew_at;
        bool from_log;
    };

    // A message of a batch.
    using Handle = sink::Handle;

    struct Rejection {
        sink::SettledEvent settlement;
        std::map<int64, std::vector<int64>> behind; // by batch
        std::vector<Handle> blocked;                // of these
    };

    // Of a batch.
    struct Delivered {
        std::size_t count = 0;
        std::vector<int64> ids; // unless it is all that was left
    };

    // What a transaction is to do, and has done. Made before it begins and believed when it is
    // committed: while it runs, nothing with a destructor is made.
    struct Plan {
        std::size_t settled = 0;  // how many of dispatcher_->settled() it is about
        std::vector<int64> ended; // batches from the log of which everything is delivered
        std::map<int64, Delivered> delivered;
        std::vector<Rejection> rejections;
        std::vector<int64> renewals;
        std::vector<int64> in_hand;        // batches that are left after settling
        std::vector<int64> settled_before; // and those that are not, since the last claim
        std::size_t wanted = 0;            // events; 0: it does not claim
        bool looks_for_retries = false;
        TimestampTz next_retry = 0;
    };

    void plan_settlements(Plan& plan) const;
    Plan make_plan(sink::TimePoint now, bool settles, bool claims) const;
    bool is_to_settle(sink::TimePoint now) const;
    bool is_to_claim(sink::TimePoint now, std::size_t memory) const;
    bool is_to_renew(sink::TimePoint now) const;
    bool is_to_hand_back(sink::TimePoint now) const;

    void transact(sink::TimePoint now, bool settles, bool claims, std::size_t memory);
    void settle(Plan& plan) const;
    void count_delivered(const Plan& plan) const;
    static void reject(Rejection& rejection);
    ClaimResult claim_next(const Plan& plan, bool may_defer_write,
                           SinkEventBuilder& sink_events) const;
    void write_deferred_batch(sink::TimePoint now);
    void believe(const Plan& plan, sink::TimePoint now);
    void take(SinkEventBuilder& sink_events, sink::TimePoint now);
    void count_down(int64 token, std::size_t count);
    void recover(const pg::Rollback& rollback, sink::TimePoint now);
    void drop_lost_batches();
    void hand_back();

    SinkDefinition definition_;
    std::string activity_;
    std::unique_ptr<sink::Dispatcher> dispatcher_;
    std::vector<std::string> metadata_;
    std::map<int64, Batch> batches_;
    std::vector<int64> settled_; // batches that ended since the last claim
    mutable ConsumerStateCache state_cache_;
    std::size_t memory_ = 0;
    bool may_find_something_ = true;
    bool looks_for_retries_ = true;
    sink::TimePoint next_look_{};
    sink::TimePoint claim_at_{};        // not before
    sink::TimePoint settle_by_ = never; // something waits to be written down
    sink::TimePoint flush_by_ = never;  // the last commit
    sink::TimePoint retry_at_{};        // after a failed transaction
    std::string problem_;               // of the last transaction, if it failed
    SinkStatusReporter status_reporter_;

    static constexpr sink::TimePoint never = sink::TimePoint::max();
};

} // namespace outbox
