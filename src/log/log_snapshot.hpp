// What can be in the log at a moment: which rows are visible, how far ids have been drawn, and
// which transactions may still bring rows with such ids.
#pragma once

#include "core/cursor.hpp"
#include "pg/postgres.hpp"

namespace outbox {

struct LogSnapshot {
    Snapshot snapshot;           // registered: give it back with release_log_snapshot()
    Id seq;                      // no id beyond it is visible
    std::span<XidRange> running; // in any order
};

// Call as the owner of the log, with everything locked that is going to be read.
LogSnapshot take_log_snapshot();

void release_log_snapshot(LogSnapshot& log_snapshot);

} // namespace outbox
