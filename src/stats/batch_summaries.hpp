// Summaries of delivered batches, in shared memory. An SQL worker acks a batch by its token alone;
// by the summary the ack is counted without reading the messages again.
//
// A ring of 4096 summaries indexed by token, without a lock. A batch whose summary was overwritten
// is read again.
#pragma once

#include "stats/shared_counters.hpp"

#include <optional>

namespace outbox::stats {

// The properties of a delivered event that are counted.
struct EventFacts {
    TypeSlotNumber type;
    uint32 bytes;
    TimestampTz occurred_at;
};

// Counts of a batch, and a sample of its times for the latency histogram. Fixed size.
struct BatchSummary {
    static constexpr int max_types = 8;
    static constexpr int max_samples = 8;

    uint32 count;
    uint64 bytes;
    struct {
        TypeSlotNumber type;
        uint32 count;
    } types[max_types];                   // the last one counts all further types, as type 0
    TimestampTz occurred_at[max_samples]; // evenly spaced in the batch
};

// Builds the summary of a batch while its events are delivered, in constant memory.
class SummaryBuilder {
public:
    // Counts an event, and keeps the time of one in `stride_` events as a sample.
    void add(const EventFacts& event);
    // Returns the summary of the events added so far.
    BatchSummary summary() const;
    bool empty() const { return summary_.count == 0; }

private:
    BatchSummary summary_ = {};
    int stride_ = 1; // one sample per this many events
    int sample_count_ = 0;
    TimestampTz sample_times_[2 * BatchSummary::max_samples];
};

// Stores a summary in shared memory at once, without a lock; a rollback does not undo it. The
// caller has checked is_enabled().
void store_batch_summary(int64 token, const BatchSummary& summary);

// Reads the summary of a batch of this database from shared memory, without a lock; std::nullopt if
// it was overwritten or is being written. The caller has checked is_enabled().
std::optional<BatchSummary> find_batch_summary(int64 token);

// Requests the shared memory. Called once, when the library is loaded.
void set_up_batch_summaries();

} // namespace outbox::stats
