// Finds the partition of the log or the audit log for the present time, and decides whether rows
// may bypass the executor.
#pragma once

#include "log/partition_setup.hpp"
#include "pg/catalog_generation.hpp"
#include "pg/heap_insert.hpp"

namespace outbox {

// The table and the partition for rows of time `now`, open with RowExclusiveLock.
struct InsertTarget {
    Relation table;
    Relation partition;
    TimestampTz now;
};

// Opens the table and its partition for the present time with RowExclusiveLock. Creates partitions
// if none covers that; raises object_not_in_prerequisite_state if there is still none.
InsertTarget open_insert_target(PartitionedTable table);

// Closes the relations. The locks stay until the end of the transaction, so that a detach waits.
void close_insert_target(const InsertTarget& target);

// Decides whether rows may be inserted by heap and index access, without the executor: only if the
// table and the partition are as the extension created them. The answer is cached per backend until
// a relcache invalidation of either.
class DirectInsertCheck {
public:
    template <int count>
    constexpr DirectInsertCheck(pg::PartitionWatch watcher, const pg::ColumnSpec (&columns)[count])
        : watcher_(watcher), columns_(columns), count_(count)
    {}

    // Returns the answer for this table and partition. When it is not cached, sets the partition as
    // the watched one, so that changes to it clear the cache.
    bool is_allowed(const InsertTarget& target);

private:
    pg::PartitionWatch watcher_;
    const pg::ColumnSpec* columns_;
    int count_;
    Oid known_partition_ = InvalidOid;
    uint64 known_generation_ = 0;
    bool known_answer_ = false;
};

} // namespace outbox
