// Opens the log for reading: its partitions, and the archived ones that the reader needs.
#pragma once

#include "core/cursor.hpp"
#include "log/append.hpp"
#include "pg/palloc_vector.hpp"

namespace outbox {

// An open partition of the log or the archive, as read on demand by log_scan.
struct LogPartition {
    Relation table;
    enum { unknown, empty, filled } content; // as of the first read
    AttrNumber attnums[log_column_count];    // of the log's columns; set if filled
};

// The relations that open_log_for_reading() has opened and locked.
struct OpenLog {
    Relation parent;
    Relation archive;                          // nullptr: not needed
    pg::PallocVector<LogPartition> partitions; // of the log, then of the archive
    std::size_t log_partition_count;           // how many of them are the log's
    Id archive_above; // archived partitions with ids above this one are opened, too
};

// Takes AccessShareLock on the log, its partitions, and archived partitions with ids above this
// one, for which it locks the archive, too. Take the snapshot afterwards: an older one could miss
// rows of a partition that was detached in between. Call inside as_owner().
OpenLog open_log_for_reading(Id above);

// Closes the relations. The locks stay until the end of the transaction.
void close_log(OpenLog& log);

// Opens a single partition with AccessShareLock. Raises undefined_table if it does not exist,
// wrong_object_type if it belongs to neither the log nor the archive.
OpenLog open_partition_for_reading(Oid partition);

// Returns false if a partition was attached between opening the log and taking the snapshot; then
// reopen the log and take a new snapshot, or rows would be skipped. May read pg_inherits and
// _outbox.archived_partitions. Call after taking the snapshot, inside as_owner().
bool contains_all_partitions(const OpenLog& log);

// The log, opened completely, and a registered snapshot that was taken under its locks.
struct CurrentLog {
    OpenLog log;
    Snapshot snapshot;
};

// Opens the log like open_log_for_reading() and registers the newest snapshot. Repeats both while a
// partition is attached in between. Call inside as_owner().
CurrentLog open_current_log(Id above);

// Unregisters the snapshot and closes the relations. The locks stay.
void close_current_log(CurrentLog& current);

} // namespace outbox
