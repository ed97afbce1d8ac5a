// The state of the log at one time: the visible rows, the last drawn id, and the transactions that
// may still commit rows with ids up to it.
#pragma once

#include "core/cursor.hpp"
#include "pg/postgres.hpp"

namespace outbox {

// Allocated in the current memory context.
struct LogSnapshot {
    Snapshot snapshot;           // registered until release_log_snapshot()
    Id seq;                      // last drawn id; no visible row has a greater one
    std::span<XidRange> running; // transactions that may still commit, in any order
};

// Registers a new snapshot, under REPEATABLE READ as well, then reads the log's sequence and the
// next xid. Increments the command counter. Call inside as_owner(), with locks on all partitions
// that will be read: an older snapshot could miss rows of a detached partition.
LogSnapshot take_log_snapshot();

// Unregisters the snapshot.
void release_log_snapshot(LogSnapshot& log_snapshot);

} // namespace outbox
