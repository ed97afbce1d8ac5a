#include "log/log_scan.hpp"

#include "extension/relations.hpp"
#include "pg/index_scan.hpp"

namespace outbox {

namespace {

// Opens the partition's index on (id) with AccessShareLock. Raises an error if there is none.
Relation open_index_on_id(const LogPartition& partition)
{
    const AttrNumber columns[] = {partition.attnums[col_id]};
    return pg::open_index(partition.table, columns, AccessShareLock);
}

// Opens the partition's index on (xid, id), of the first rows of runs or of all rows, with
// AccessShareLock. Raises an error if there is none.
Relation open_index_on_xid(const LogPartition& partition)
{
    const AttrNumber columns[] = {partition.attnums[col_xid], partition.attnums[col_id]};
    return pg::open_index(partition.table, columns, AccessShareLock,
                          partition.attnums[col_run_length]);
}

// Returns whether the partition had any block at the first call. Without one, it has no row that a
// snapshot taken before that call could show. The first call also looks up the column numbers, and
// raises an error if a column is missing or the partition is no plain table.
bool has_rows(LogPartition& partition)
{
    if (partition.content == LogPartition::unknown) {
        if (partition.table->rd_rel->relkind != RELKIND_RELATION)
            ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
                            errmsg("\"%s\" cannot be read: a partition of the log is a plain table",
                                   RelationGetRelationName(partition.table))));
        const bool empty = RelationGetNumberOfBlocks(partition.table) == 0;
        partition.content = empty ? LogPartition::empty : LogPartition::filled;
        for (int column = 0; !empty && column < log_column_count; ++column)
            partition.attnums[column] =
                pg::find_column(partition.table, log_columns[column], column);
    }
    return partition.content == LogPartition::filled;
}

// Fills in a scan key on one column of the index, from 1.
void init_key(ScanKey key, int column, StrategyNumber strategy, RegProcedure function, Datum value)
{
    ScanKeyInit(key, static_cast<AttrNumber>(column), strategy, function, value);
}

// Opens a scan with room for `keys` scan keys, and a tuple slot. index_rescan() starts it;
// close_scanner() frees it and closes the index.
PartitionScanner open_scanner(LogPartition& partition, Relation index, Snapshot snapshot, int keys)
{
    PartitionScanner scanner = {};
    scanner.partition = &partition;
    scanner.index = index;
    scanner.slot = table_slot_create(partition.table, nullptr);
    scanner.scan = pg::begin_index_scan(partition.table, index, snapshot, keys);
    return scanner;
}

// Ends the index scans, drops the slots and closes the indexes. The locks stay.
void close_scanner(PartitionScanner& scanner)
{
    if (scanner.runs != nullptr) {
        index_endscan(scanner.runs->scan);
        ExecDropSingleTupleTableSlot(scanner.runs->first_row);
        index_close(scanner.runs->index, NoLock);
    }
    index_endscan(scanner.scan);
    ExecDropSingleTupleTableSlot(scanner.slot);
    index_close(scanner.index, NoLock);
}

// Makes `row` the scanner's current row and reads its id.
void set_found_row(PartitionScanner& scanner, TupleTableSlot* row)
{
    bool isnull;
    scanner.found_row = row;
    scanner.id = DatumGetInt64(slot_getattr(row, scanner.partition->attnums[col_id], &isnull));
}

// Moves the scan by id to its next row. Returns false, and sets `ended`, if there is none.
bool fetch_next(PartitionScanner& scanner)
{
    scanner.ended = !index_getnext_slot(scanner.scan, ForwardScanDirection, scanner.slot);
    if (!scanner.ended)
        set_found_row(scanner, scanner.slot);
    return !scanner.ended;
}

// Restarts the scan by id for rows with from < id <= upto, and fetches none.
void rescan_between(const PartitionScanner& scanner, Id from, Id upto)
{
    ScanKeyData keys[2];
    init_key(&keys[0], 1, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(from));
    init_key(&keys[1], 1, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum(upto));
    index_rescan(scanner.scan, keys, 2, nullptr, 0);
}

// Moves a TransactionScan to the next row of its transaction, or sets `ended`.
void fetch_next_of_runs(PartitionScanner& scanner)
{
    RunScan& runs = *scanner.runs;
    while (!runs.is_inside_run || !fetch_next(scanner)) {
        scanner.ended = !index_getnext_slot(runs.scan, ForwardScanDirection, runs.first_row);
        if (scanner.ended)
            return;
        bool isnull;
        const Datum length =
            slot_getattr(runs.first_row, scanner.partition->attnums[col_run_length], &isnull);
        // An index that a user has created may also contain rows that do not begin a run.
        runs.is_inside_run = !isnull && DatumGetInt16(length) > 1;
        if (isnull)
            continue;
        set_found_row(scanner, runs.first_row);
        if (runs.is_inside_run)
            rescan_between(scanner, Max(scanner.id, runs.skip_upto),
                           scanner.id + DatumGetInt16(length) - 1);
        if (scanner.id > runs.skip_upto)
            return;
    }
}

constexpr Id max_id = PG_INT64_MAX;

// Restarts the scan by id at the first of wanted_ids, and fetches no row. It ends before
// `scan_end`.
void rescan_wanted(PartitionScanner& scanner, Id scan_end)
{
    scanner.scan_end = scan_end;
    scanner.found_any = false;
    ScanKeyData keys[2];
    init_key(&keys[0], 1, BTGreaterEqualStrategyNumber, F_INT8GE,
             Int64GetDatum(scanner.wanted_ids.front().from));
    init_key(&keys[1], 1, BTLessStrategyNumber, F_INT8LT, Int64GetDatum(scan_end));
    index_rescan(scanner.scan, keys, 2, nullptr, 0);
}

// Restarts the scan at the first of wanted_ids without an end: it finds the first row from there
// on, wanted or not.
void rescan_unbounded(PartitionScanner& scanner)
{
    rescan_wanted(scanner, max_id);
}

// Restarts the scan for the next wanted ids that lie close together. The scan has an end, because a
// btree scan without one reads all remaining items of its leaf page.
void rescan_next_cluster(PartitionScanner& scanner)
{
    constexpr Id max_gap = 4; // unwanted ids that are cheaper to skip than a new index descent
    std::size_t last = 0;
    while (last + 1 < scanner.wanted_ids.size() &&
           scanner.wanted_ids[last + 1].from - scanner.wanted_ids[last].upto <= max_gap)
        ++last;
    rescan_wanted(scanner, scanner.wanted_ids[last].upto);
}

// Removes the leading ranges of wanted_ids whose ids are all below `id`.
void drop_wanted_below(PartitionScanner& scanner, Id id)
{
    while (!scanner.wanted_ids.empty() && scanner.wanted_ids.front().upto <= id)
        scanner.wanted_ids = scanner.wanted_ids.subspan(1);
}

// Moves an IdScan to the next wanted row, or sets `ended`.
void fetch_next_wanted(PartitionScanner& scanner)
{
    for (;;) {
        const bool is_bounded = scanner.scan_end != max_id;
        if (fetch_next(scanner)) {
            scanner.found_any = true;
            drop_wanted_below(scanner, scanner.id);
            if (!scanner.wanted_ids.empty() && scanner.wanted_ids.front().from <= scanner.id)
                return;
            if (is_bounded)
                continue;
        } else {
            if (!is_bounded)
                return;
            drop_wanted_below(scanner, scanner.scan_end);
        }
        scanner.ended = scanner.wanted_ids.empty();
        if (scanner.ended)
            return;
        // After a hit, the next wanted ids are likely in this partition, too. After a miss, an
        // unbounded scan tells whether the partition has any further id.
        if (scanner.found_any)
            rescan_next_cluster(scanner);
        else
            rescan_unbounded(scanner);
    }
}

// Moves a scanner of any kind to its next row, or sets `ended`. Checks for interrupts.
void advance(PartitionScanner& scanner)
{
    CHECK_FOR_INTERRUPTS();
    if (scanner.runs != nullptr)
        fetch_next_of_runs(scanner);
    else if (scanner.wanted_ids.data() != nullptr)
        fetch_next_wanted(scanner);
    else
        fetch_next(scanner);
}

// Returns the least xid at or above `from` that has an index entry, dead or alive, or 0.
Xid find_xid_from(IndexScanDesc scan, Xid from)
{
    ScanKeyData key;
    init_key(&key, 1, BTGreaterEqualStrategyNumber, F_XID8GE,
             FullTransactionIdGetDatum(FullTransactionIdFromU64(from)));
    index_rescan(scan, &key, 1, nullptr, 0);
    if (index_getnext_tid(scan, ForwardScanDirection) == nullptr)
        return 0;
    bool isnull;
    const Datum xid = index_getattr(scan->xs_itup, 1, scan->xs_itupdesc, &isnull);
    return U64FromFullTransactionId(DatumGetFullTransactionId(xid));
}

// Returns the transactions of `ended` that have index entries in the partition. Ranges can span
// hundreds of thousands of xids, mostly of subtransactions, so the index is searched for the next
// existing xid instead of for each one.
pg::PallocVector<RunningRange> find_present_xids(const LogPartition& partition, Relation index,
                                                 Snapshot snapshot,
                                                 std::span<const RunningRange> ended)
{
    pg::PallocVector<RunningRange> present;
    const IndexScanDesc scan = pg::begin_index_scan(partition.table, index, snapshot, 1);
    scan->xs_want_itup = true;
    Xid known = 0; // every index entry below this xid has been examined
    for (const RunningRange& range : ended) {
        Xid from = Max(range.from, known);
        while (from < range.upto) {
            const Xid xid = find_xid_from(scan, from);
            known = xid == 0 ? PG_UINT64_MAX : xid;
            if (known >= range.upto)
                break;
            present.push({xid, xid + 1, range.above});
            from = xid + 1;
        }
        if (known == PG_UINT64_MAX)
            break;
    }
    index_endscan(scan);
    return present;
}

// Opens a scan of the transaction's rows with after < id <= upto. `index` is the one on (xid, id),
// locked by the caller. The search for runs starts max_events_per_append ids before, because a run
// that begins there may extend into the range.
PartitionScanner open_run_scanner(LogPartition& partition, Oid index, Snapshot snapshot,
                                  const RunningRange& transaction, Id after, Id upto)
{
    PartitionScanner scanner = open_scanner(partition, open_index_on_id(partition), snapshot, 2);
    auto* runs = static_cast<RunScan*>(palloc0(sizeof(RunScan)));
    runs->index = index_open(index, NoLock);
    runs->first_row = table_slot_create(partition.table, nullptr);
    runs->scan = pg::begin_index_scan(partition.table, runs->index, snapshot, 3);
    runs->skip_upto = Max(transaction.above, after);
    ScanKeyData keys[3];
    init_key(&keys[0], 1, BTEqualStrategyNumber, F_XID8EQ,
             FullTransactionIdGetDatum(FullTransactionIdFromU64(transaction.from)));
    init_key(&keys[1], 2, BTGreaterStrategyNumber, F_INT8GT,
             Int64GetDatum(Max(transaction.above, after - max_events_per_append)));
    init_key(&keys[2], 2, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum(upto));
    index_rescan(runs->scan, keys, 3, nullptr, 0);
    scanner.runs = runs;
    return scanner;
}

} // namespace

const Message* MergedScan::next()
{
    if (!started_)
        for (PartitionScanner& scanner : scanners_)
            advance(scanner);
    else if (current_ != nullptr)
        advance(*current_);
    started_ = true;

    current_ = nullptr;
    for (PartitionScanner& scanner : scanners_)
        if (!scanner.ended && (current_ == nullptr || scanner.id < current_->id))
            current_ = &scanner;
    if (current_ == nullptr)
        return nullptr;
    slot_getallattrs(current_->found_row);
    for (int column = 0; column < column_count; ++column) {
        const int i = current_->partition->attnums[column] - 1;
        message_.values[column] = current_->found_row->tts_values[i];
        message_.nulls[column] = current_->found_row->tts_isnull[i];
    }
    return &message_;
}

void MergedScan::close()
{
    for (PartitionScanner& scanner : scanners_)
        close_scanner(scanner);
    scanners_.set_size(0);
    current_ = nullptr;
}

LateCommitScan::LateCommitScan(OpenLog& log, Snapshot snapshot, const Cursor& cursor)
{
    pg::PallocVector<RunningRange> ended;
    ended.reserve(cursor.passed.running.size() + cursor.target->running.size());
    ended.set_size(find_ended_ranges(cursor.passed, *cursor.target, ended.data()));
    if (ended.empty())
        return;
    add_transactions(log, snapshot, ended.view(), cursor.last_id, cursor.passed.seq);
}

RunningXidScan::RunningXidScan(OpenLog& log, Snapshot snapshot, const Position& position)
{
    add_transactions(log, snapshot, position.running, 0, position.seq);
}

void TransactionScan::add_transactions(OpenLog& log, Snapshot snapshot,
                                       std::span<const RunningRange> transactions, Id after,
                                       Id upto)
{
    for (LogPartition& partition : log.partitions) {
        if (!has_rows(partition))
            continue;
        const Relation index = open_index_on_xid(partition);
        for (const RunningRange& one : find_present_xids(partition, index, snapshot, transactions))
            add(open_run_scanner(partition, RelationGetRelid(index), snapshot, one, after, upto));
        index_close(index, NoLock);
    }
}

RangeScan::RangeScan(OpenLog& log, Snapshot snapshot, Id from, Id upto)
{
    if (from >= upto)
        return;
    for (LogPartition& partition : log.partitions) {
        if (!has_rows(partition))
            continue;
        const PartitionScanner scanner =
            open_scanner(partition, open_index_on_id(partition), snapshot, 2);
        rescan_between(scanner, from, upto);
        add(scanner);
    }
}

IdScan::IdScan(OpenLog& log, Snapshot snapshot, IdRanges ids)
{
    if (ids.empty())
        return;
    for (LogPartition& partition : log.partitions) {
        if (!has_rows(partition))
            continue;
        PartitionScanner scanner =
            open_scanner(partition, open_index_on_id(partition), snapshot, 2);
        scanner.wanted_ids = ids;
        rescan_unbounded(scanner);
        add(scanner);
    }
}

bool has_unread_rows(OpenLog& log, Snapshot snapshot, const Cursor& cursor)
{
    const auto finds = [&](MergedScan&& scan) {
        const Message* message = scan.next();
        while (message != nullptr && cursor.has_passed(message->xid(), message->id()))
            message = scan.next();
        scan.close();
        return message != nullptr;
    };
    return finds(RangeScan(log, snapshot, cursor.read_upto(), max_id)) ||
           finds(RunningXidScan(log, snapshot, cursor.passed)) ||
           (cursor.target && finds(RunningXidScan(log, snapshot, *cursor.target)));
}

TargetScan::TargetScan(OpenLog& log, Snapshot snapshot, const Cursor& cursor)
    : cursor_(cursor), late_commits_(log, snapshot, cursor),
      new_rows_(log, snapshot, cursor.read_upto(), cursor.target->seq)
{}

const Message* TargetScan::next()
{
    // Late commits first: their ids are at most passed.seq, those of new rows are greater.
    if (!late_commits_ended_) {
        if (const Message* message = late_commits_.next())
            return message;
        late_commits_ended_ = true;
    }
    while (const Message* message = new_rows_.next())
        if (cursor_.target->covers(message->xid(), message->id()))
            return message;
    return nullptr;
}

void TargetScan::close()
{
    late_commits_.close();
    new_rows_.close();
}

} // namespace outbox
