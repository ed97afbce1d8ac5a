// What is in a batch of an SQL worker, which is acked by its token alone: remembered in shared
// memory, so that the ack can be counted without reading the events again.
#pragma once

#include "stats/shared_counters.hpp"

#include <optional>

namespace outbox::stats {

// What is to be known of an event that was handed out.
struct Facts {
    TypePlace type;
    uint32 bytes;
    TimestampTz occurred_at;
};

// Some of what is in a batch stands for all of it.
struct Summary {
    static constexpr int max_types = 8;
    static constexpr int samples = 8;

    uint32 count;
    uint64 bytes;
    struct {
        TypePlace type;
        uint32 count;
    } types[max_types]; // the last takes in what finds no place
    TimestampTz occurred_at[samples];
};

// Collects a summary on the way.
class Collector {
public:
    void add(const Facts& event);
    Summary summary() const;
    bool empty() const { return summary_.count == 0; }

private:
    Summary summary_ = {};
    int stride_ = 1; // every so many-th event is a sample
    int taken_ = 0;
    TimestampTz taken_at_[2 * Summary::samples];
};

// Beyond the transaction, for as long as there are few others.
void remember_batch(int64 token, const Summary& summary);
std::optional<Summary> recall_batch(int64 token);

void set_up_batches();

} // namespace outbox::stats
