// The plan of one transaction of a sink task. Allocated before the transaction begins and applied
// to memory after its commit: during the transaction a longjmp may cross any frame, so no object
// with a destructor is made, and a rollback leaves the task's memory as it was.
#pragma once

#include "consumer/batch_store.hpp"
#include "sink/dispatch/dispatcher.hpp"

#include <map>
#include <vector>

namespace outbox {

// A batch that the task has claimed and not settled.
struct OpenBatch {
    std::size_t unsettled;    // events not yet settled in the tables
    sink::TimePoint renew_at; // when the lease must be extended
    bool from_log;            // false: from _outbox.retries
};

using OpenBatches = std::map<int64, OpenBatch>; // by token

struct TransactionPlan {
    // Delivered events of one batch.
    struct Delivered {
        std::size_t count = 0;
        std::vector<int64> ids; // empty if the whole rest of the batch is delivered
    };

    // An event that the endpoint rejected.
    struct Rejection {
        sink::SettledEvent event;
        std::map<int64, std::vector<int64>> behind; // later ids of its aggregate, by token
        std::vector<sink::EventRef> blocked; // out: the ones that now wait in _outbox.retries
    };

    std::size_t settled_count = 0;      // leading elements of Dispatcher::settled() that it covers
    std::vector<int64> delivered_whole; // tokens of batches from the log, delivered as a whole
    std::map<int64, Delivered> delivered; // by token
    std::vector<Rejection> rejections;
    std::vector<int64> renewals;        // tokens of leases to extend
    std::vector<int64> open_batches;    // tokens of batches that stay open
    std::vector<int64> settled_batches; // tokens of batches that ended since the last claim
    std::size_t claim_size = 0;         // events; 0: no claim
    bool checks_retries = false;
    TimestampTz next_retry = 0; // out: when the next retry is due, DT_NOEND: none
};

// Adds all results that the dispatcher has recorded to the plan, and leaves them with the
// dispatcher. Skips events of batches that are not in `batches`.
void plan_settlements(TransactionPlan& plan, const sink::Dispatcher& dispatcher,
                      const OpenBatches& batches, bool ordered);

// Acks, fails and blocks messages in the tables, counts them and renews leases; fills `blocked` of
// the plan's rejections. Raises the errors of settle.hpp. Call inside in_transaction().
void write_settlements(TransactionPlan& plan, const sink::Dispatcher& dispatcher,
                       const OpenBatches& batches, int32 consumer);

} // namespace outbox
