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
inline void append_to(pg::PallocVector<IdRange>& set, Id id)
{
    set.reserve(set.size() + 1);
    set.set_size(append_id(set.data(), set.size(), id));
}

// The runs that one transaction has written to a partition.
struct RunScan {
    Relation index;
    IndexScanDesc scan;
    TupleTableSlot* first; // of the present run
    Id after;              // rows up to here are passed over
    bool is_inside;        // is the rest of a run being read?
};

// One scan of one partition, by id.
struct Scanner {
    LogPartition* partition;
    Relation index;
    IndexScanDesc scan;
    TupleTableSlot* slot;
    TupleTableSlot* row; // what was found
    Id id;               // of that
    bool ended;

    // For a scan of given ids.
    IdRanges wanted; // those that are still to come
    Id until;        // where the present look ends
    bool found;      // has it found anything?

    // For a scan of what a transaction has written.
    RunScan* runs;
};

// Rows of several scans, merged by id. Message and its values are good until the next call.
class MergedScan {
public:
    const Message* next();
    void close();

protected:
    void add(const Scanner& scanner) { scanners_.push(scanner); }

private:
    pg::PallocVector<Scanner> scanners_;
    Scanner* current_ = nullptr;
    bool started_ = false;
    Message message_;
};

// The rows that given transactions have written.
class TransactionScan : public MergedScan {
protected:
    // With after < id <= upto, and above what is said of each.
    void add_transactions(OpenLog& log, Snapshot snapshot, std::span<const Running> transactions,
                          Id after, Id upto);
};

// What was running when `cursor.passed` was taken, has ended at `cursor.target`, and lies between
// cursor.last_id and cursor.passed.seq.
class LateCommitScan : public TransactionScan {
public:
    LateCommitScan(OpenLog& log, Snapshot snapshot, const Cursor& cursor);
};

// The rows up to the position that were its exceptions.
class ExceptionScan : public TransactionScan {
public:
    ExceptionScan(OpenLog& log, Snapshot snapshot, const Position& position);
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

// WakeupRequests `visit` for each row of the log with these ids that is there now, in their order,
// until it says false.
template <typename Visit>
void visit_messages(IdRanges ids, Visit&& visit)
{
    if (ids.empty())
        return;
    LogNow now = open_log_now(ids.front().from - 1);
    IdScan scan(now.log, now.snapshot, ids);
    const Message* message = scan.next();
    while (message != nullptr && visit(*message))
        message = scan.next();
    scan.close();
    close_log_now(now);
}

// Is there a row that the cursor has not passed?
bool has_unread(OpenLog& log, Snapshot snapshot, const Cursor& cursor);

// All that is between cursor.passed and cursor.target, behind cursor.last_id.
class TargetScan {
public:
    TargetScan(OpenLog& log, Snapshot snapshot, const Cursor& cursor);

    // Nothing: the target is drained.
    const Message* next();
    void close();

private:
    Cursor cursor_;
    LateCommitScan stragglers_;
    RangeScan rest_;
    bool stragglers_ended_ = false;
};

} // namespace outbox
