// What is in a batch of an SQL worker, which is acked by its token alone: remembered in shared
// memory, so that the ack can be counted without reading the events again.
#pragma once

#include "stats/shared_counters.hpp"

#include <optional>

namespace outbox::stats {

// What is to be known of an event that was handed out.
struct EventFacts {
    TypeSlotNumber type;
    uint32 bytes;
    TimestampTz occurred_at;
};

// Some of what is in a batch stands for all of it.
struct BatchSummary {
    static constexpr int max_types = 8;
    static constexpr int max_samples = 8;

    uint32 count;
    uint64 bytes;
    struct {
        TypeSlotNumber type;
        uint32 count;
    } types[max_types]; // the last takes in what finds no place
    TimestampTz occurred_at[max_samples];
};

// Collects a summary on the way.
class SummaryBuilder {
public:
    void add(const EventFacts& event);
    BatchSummary summary() const;
    bool empty() const { return summary_.count == 0; }

private:
    BatchSummary summary_ = {};
    int stride_ = 1; // every so many-th event is a sample
    int sample_count_ = 0;
    TimestampTz sample_times_[2 * BatchSummary::max_samples];
};

// Beyond the transaction, for as long as there are few others.
void store_batch_summary(int64 token, const BatchSummary& summary);
std::optional<BatchSummary> find_batch_summary(int64 token);

void set_up_batch_summaries();

} // namespace outbox::stats
