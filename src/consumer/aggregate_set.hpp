// A set of aggregates: those of which a message has failed.
#pragma once

#include "log/log_scan.hpp"

struct HTAB;

namespace outbox {

class AggregateSet {
public:
    // In the current memory context, from the first one on.
    void add(const Message& message);
    bool contains(const Message& message) const;

private:
    HTAB* table_ = nullptr;
};

} // namespace outbox
