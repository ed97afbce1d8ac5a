// Reading the log: what comes next behind a cursor, and what has given ids. In the order of ids,
// across all partitions, whatever their bounds say about time.
#pragma once

#include "core/cursor.hpp"
#include "log/open_partitions.hpp"

namespace outbox {

// A row of the log, or of a copy with the same columns.
struct Message {
    Datum values[column_count];
    bool nulls[column_count];

    Id id() const { return DatumGetInt64(values[col_id]); }
    Xid xid() const { return U64FromFullTransactionId(DatumGetFullTransactionId(values[col_xid])); }
};

// Adds an id that is greater than all in the set.
inline void append_id(pg::PallocVector<IdRange>& set, Id id)
{
    set.reserve(set.size() + 1);
    set.set_size(append_id(set.data(), set.size(), id));
}

// The runs that one transaction has written to a partition.
struct RunScan {
    Relation index;
    IndexScanDesc scan;
    TupleTableSlot* first_row; // of the present run
    Id skip_upto;              // rows up to here are passed over
    bool is_inside_run;        // is the rest of a run being read?
};

// One scan of one partition, by id.
struct PartitionScanner {
    LogPartition* partition;
    Relation index;
    IndexScanDesc scan;
    TupleTableSlot* slot;
    TupleTableSlot* found_row; // what was found
    Id id;                     // of that
    bool ended;

    // For a scan of given ids.
    IdRanges wanted_ids; // those that are still to come
    Id scan_end;         // where the present look ends
    bool found_any;      // has it found anything?

    // For a scan of what a transaction has written.
    RunScan* runs;
};

// Rows of several scans, merged by id. Message and its values are good until the next call.
class MergedScan {
public:
    const Message* next();
    void close();

protected:
    void add(const PartitionScanner& scanner) { scanners_.push(scanner); }

private:
    pg::PallocVector<PartitionScanner> scanners_;
    PartitionScanner* current_ = nullptr;
    bool started_ = false;
    Message message_;
};

// The rows that given transactions have written.
class TransactionScan : public MergedScan {
protected:
    // With after < id <= upto, and above what is said of each.
    void add_transactions(OpenLog& log, Snapshot snapshot,
                          std::span<const RunningRange> transactions, Id after, Id upto);
};

// What was running when `cursor.passed` was taken, has ended at `cursor.target`, and lies between
// cursor.last_id and cursor.passed.seq.
class LateCommitScan : public TransactionScan {
public:
    LateCommitScan(OpenLog& log, Snapshot snapshot, const Cursor& cursor);
};

// The rows up to the position that were its exceptions.
class RunningXidScan : public TransactionScan {
public:
    RunningXidScan(OpenLog& log, Snapshot snapshot, const Position& position);
};

// The rows with from < id <= upto.
class RangeScan : public MergedScan {
public:
    RangeScan(OpenLog& log, Snapshot snapshot, Id from, Id upto);
};

// The rows with these ids.
class IdScan : public MergedScan {
public:
    IdScan(OpenLog& log, Snapshot snapshot, IdRanges ids);
};

// Calls `visit` for each row of the log with these ids that is there now, in their order,
// until it says false.
template <typename Visit>
void visit_messages(IdRanges ids, Visit&& visit)
{
    if (ids.empty())
        return;
    CurrentLog current = open_current_log(ids.front().from - 1);
    IdScan scan(current.log, current.snapshot, ids);
    const Message* message = scan.next();
    while (message != nullptr && visit(*message))
        message = scan.next();
    scan.close();
    close_current_log(current);
}

// Is there a row that the cursor has not passed?
bool has_unread_rows(OpenLog& log, Snapshot snapshot, const Cursor& cursor);

// All that is between cursor.passed and cursor.target, behind cursor.last_id.
class TargetScan {
public:
    TargetScan(OpenLog& log, Snapshot snapshot, const Cursor& cursor);

    // Nothing: the target is drained.
    const Message* next();
    void close();

private:
    Cursor cursor_;
    LateCommitScan late_commits_;
    RangeScan new_rows_;
    bool late_commits_ended_ = false;
};

} // namespace outbox
