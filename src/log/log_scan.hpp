// Index scans of the log in id order, merged across its partitions: late commits, ranges of ids,
// sets of ids. Every partition is scanned whatever its bounds, because clocks can jump.
#pragma once

#include "core/cursor.hpp"
#include "log/open_partitions.hpp"

namespace outbox {

// A row of the log, or of a table with copies of its rows.
struct Message {
    Datum values[column_count];
    bool nulls[column_count];

    Id id() const { return DatumGetInt64(values[col_id]); }
    Xid xid() const { return U64FromFullTransactionId(DatumGetFullTransactionId(values[col_xid])); }
};

// Adds an id that is greater than all ids of the set.
inline void append_id(pg::PallocVector<IdRange>& set, Id id)
{
    set.reserve(set.size() + 1);
    set.set_size(append_id(set.data(), set.size(), id));
}

// Index scan of the runs that one transaction has appended to a partition. The index on (xid, id)
// has only the first row of each run; the rest of the run is scanned by id.
struct RunScan {
    Relation index;
    IndexScanDesc scan;
    TupleTableSlot* first_row; // of the current run
    Id skip_upto;              // rows with ids up to here are skipped
    bool is_inside_run;        // the scan by id is in the rest of the current run
};

// The scan by id of one partition.
struct PartitionScanner {
    LogPartition* partition;
    Relation index;
    IndexScanDesc scan;
    TupleTableSlot* slot;
    TupleTableSlot* found_row; // the current row: `slot`, or the first row of a run
    Id id;                     // of the current row
    bool ended;

    // Only for IdScan.
    IdRanges wanted_ids; // ids that the scan has not reached
    Id scan_end;         // the current index scan ends before this id
    bool found_any;      // the current index scan has returned a row

    // Only for TransactionScan, otherwise nullptr.
    RunScan* runs;
};

// Merges the rows of several partition scans by id. Constructors of derived classes open these, in
// the current memory context and with AccessShareLock on the indexes.
class MergedScan {
public:
    // Returns nullptr at the end. The message and its values are valid until the next call.
    const Message* next();

    // Ends the index scans. The locks on the partitions stay.
    void close();

protected:
    void add(const PartitionScanner& scanner) { scanners_.push(scanner); }

private:
    pg::PallocVector<PartitionScanner> scanners_;
    PartitionScanner* current_ = nullptr;
    bool started_ = false;
    Message message_;
};

// The rows that given transactions have appended.
class TransactionScan : public MergedScan {
protected:
    // Adds rows with after < id <= upto, and above the `above` of their range.
    void add_transactions(OpenLog& log, Snapshot snapshot,
                          std::span<const RunningRange> transactions, Id after, Id upto);
};

// Late commits: rows of transactions that were running at cursor.passed and have ended at
// cursor.target, which must be set, with cursor.last_id < id <= cursor.passed.seq.
class LateCommitScan : public TransactionScan {
public:
    LateCommitScan(OpenLog& log, Snapshot snapshot, const Cursor& cursor);
};

// The rows up to position.seq of the transactions in position.running.
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

// Calls `visit` in id order for each row of the log or the archive with one of these ids, until it
// returns false. Uses the newest snapshot; AccessShareLocks on the log and its partitions stay
// until the end of the transaction. Call inside as_owner().
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

// Returns whether the snapshot shows a row in the open partitions that the cursor has not passed.
bool has_unread_rows(OpenLog& log, Snapshot snapshot, const Cursor& cursor);

// The rows between cursor.passed and cursor.target, which must be set, above cursor.last_id, in id
// order.
class TargetScan {
public:
    TargetScan(OpenLog& log, Snapshot snapshot, const Cursor& cursor);

    // Returns nullptr if the target is drained.
    const Message* next();

    // Ends the index scans. The locks on the partitions stay.
    void close();

private:
    Cursor cursor_;
    LateCommitScan late_commits_;
    RangeScan new_rows_;
    bool late_commits_ended_ = false;
};

} // namespace outbox
