// The log opened for reading: all of its partitions, locked, and what the archive has besides.
#pragma once

#include "core/cursor.hpp"
#include "log/append.hpp"
#include "pg/palloc_vector.hpp"

namespace outbox {

struct LogPartition {
    Relation table;
    enum { unknown, empty, filled } content; // as of the snapshot with which it was first read
    AttrNumber attnums[log_column_count];    // where the log's columns are, if it is filled
};

struct OpenLog {
    Relation parent;
    Relation archive; // nullptr: not needed
    pg::PallocVector<LogPartition> partitions;
    std::size_t log_partition_count; // how many of them are the log's; the rest is the archive's
    Id archive_above;                // what the archive has above this id is wanted, too
};

// Locks the log and its partitions until the end of the transaction, and with them what the archive
// has of ids above this one. A snapshot taken before that could miss rows of a partition that was
// detached meanwhile. Inside pg::as_owner().
OpenLog open_log_for_reading(Id above);
void close_log(OpenLog& log);

// The same with a single partition in it, of log or archive.
OpenLog open_partition_for_reading(Oid partition);

// Is all of the log open? To be asked when a snapshot was taken: rows may be visible in it that
// stand in a partition which nobody looks into, because it has just come. If not, it is to be
// opened anew, and the snapshot to be taken anew.
bool contains_all_partitions(const OpenLog& log);

// The log with the newest snapshot.
struct CurrentLog {
    OpenLog log;
    Snapshot snapshot;
};

CurrentLog open_current_log(Id above);
void close_current_log(CurrentLog& current);

} // namespace outbox
