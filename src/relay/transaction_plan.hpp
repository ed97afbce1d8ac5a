// What a transaction of a sink task is to do, and has done: planned before it begins, believed when
// it is committed. While it runs, nothing with a destructor is made.
#pragma once

#include "consumer/batch_store.hpp"
#include "sink/dispatch/dispatcher.hpp"

#include <map>
#include <vector>

namespace outbox {

// A batch in hand.
struct OpenBatch {
    std::size_t unsettled; // events that are not settled in the tables
    sink::TimePoint renew_at;
    bool from_log;
};

using OpenBatches = std::map<int64, OpenBatch>; // by token

struct TransactionPlan {
    // Of a batch.
    struct Delivered {
        std::size_t count = 0;
        std::vector<int64> ids; // unless it is all that was left
    };

    struct Rejection {
        sink::SettledEvent event;
        std::map<int64, std::vector<int64>> behind; // by batch
        std::vector<sink::EventRef> blocked;        // of these
    };

    std::size_t settled_count = 0;      // how many of Dispatcher::settled() it is about
    std::vector<int64> delivered_whole; // batches from the log of which everything is delivered
    std::map<int64, Delivered> delivered;
    std::vector<Rejection> rejections;
    std::vector<int64> renewals;
    std::vector<int64> open_batches;    // batches that are left after settling
    std::vector<int64> settled_batches; // and those that are not, since the last claim
    std::size_t claim_size = 0;         // events; 0: it does not claim
    bool checks_retries = false;
    TimestampTz next_retry = 0;
};

// Plans to settle everything of which the dispatcher has a result.
void plan_settlements(TransactionPlan& plan, const sink::Dispatcher& dispatcher,
                      const OpenBatches& batches, bool ordered);

// Settles in the tables, and renews leases. Call inside in_transaction().
void write_settlements(TransactionPlan& plan, const sink::Dispatcher& dispatcher,
                       const OpenBatches& batches, int32 consumer);

} // namespace outbox
