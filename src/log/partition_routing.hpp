// The partitions of the log and of the audit log, made by pg_partman, and the way of rows into
// them.
#pragma once

#include "extension/relations.hpp"
#include "pg/catalog_generation.hpp"
#include "pg/heap_insert.hpp"

namespace outbox {

// Which of them: &pg::ExtensionRelations::log or &pg::ExtensionRelations::audit_log.
using PartitionedTable = Oid ExtensionRelations::*;

// Where rows go now: both are open and locked.
struct InsertTarget {
    Relation table;
    Relation partition;
    TimestampTz now;
};

// Makes partitions if there is none for now.
InsertTarget open_insert_target(PartitionedTable table);

// The locks stay.
void close_insert_target(const InsertTarget& target);

// May rows go straight into a partition, past the executor? Only if the table and it are as the
// extension made them. The answer is kept until either changes.
class DirectInsertCheck {
public:
    template <int count>
    constexpr DirectInsertCheck(pg::PartitionWatch watcher, const pg::ColumnSpec (&columns)[count])
        : watcher_(watcher), columns_(columns), count_(count)
    {}

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
