#pragma once

#include "log/log_scan.hpp"

struct HTAB;

namespace outbox {

// A set of aggregates of which a message has failed, in memory.
class AggregateSet {
public:
    // Adds the message's aggregate. The first call allocates a hash table in the current memory
    // context.
    void add(const Message& message);
    bool contains(const Message& message) const;

private:
    HTAB* table_ = nullptr;
};

} // namespace outbox
