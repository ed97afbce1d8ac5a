#include "pg/sequence.hpp"

extern "C" {
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "storage/bufmgr.h"
}

namespace outbox::pg {

namespace {

// Number of values that WAL is ahead of the values in use: the server's SEQ_LOG_VALS.
constexpr int64 wal_logged_ahead = 32;

// Returns the sequence's MAXVALUE. Raises object_not_in_prerequisite_state for options with which
// its value is no upper bound of the ids in the log: with CACHE > 1 a session would use ids long
// after the sequence has passed them; a descending or cycling sequence would return ids below the
// cursors.
int64 check_options(Oid sequence)
{
    const HeapTuple tuple = SearchSysCache1(SEQRELID, ObjectIdGetDatum(sequence));
    if (!HeapTupleIsValid(tuple))
        elog(ERROR, "cache lookup failed for sequence %u", sequence);
    const auto* form = reinterpret_cast<Form_pg_sequence>(GETSTRUCT(tuple));
    const bool usable = form->seqcache == 1 && form->seqincrement == 1 && !form->seqcycle;
    const int64 max_value = form->seqmax;
    ReleaseSysCache(tuple);
    if (!usable) {
        const char* schema = get_namespace_name(get_rel_namespace(sequence));
        const char* name = get_rel_name(sequence);
        ereport(ERROR,
                (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                 errmsg("sequence \"%s\" must have CACHE 1, INCREMENT BY 1 and NO CYCLE", name),
                 errhint("Run ALTER SEQUENCE %s CACHE 1 INCREMENT BY 1 NO CYCLE.",
                         quote_qualified_identifier(schema, name))));
    }
    return max_value;
}

// The page of a sequence and its only tuple.
struct SequencePage {
    Buffer buffer; // pinned and exclusively locked
    HeapTupleHeader header;
    uint32 length;
    Form_pg_sequence_data data;
};

// Reads the page of a sequence, pins it and locks it exclusively.
SequencePage lock_page(Relation sequence)
{
    SequencePage page;
    page.buffer = ReadBuffer(sequence, 0);
    LockBuffer(page.buffer, BUFFER_LOCK_EXCLUSIVE);
    const Page content = BufferGetPage(page.buffer);
    const ItemId item = PageGetItemId(content, FirstOffsetNumber);
    page.header = reinterpret_cast<HeapTupleHeader>(PageGetItem(content, item));
    page.length = ItemIdGetLength(item);
    page.data = reinterpret_cast<Form_pg_sequence_data>(reinterpret_cast<char*>(page.header) +
                                                        page.header->t_hoff);
    return page;
}

// Inserts the WAL record of the page and sets the page's LSN. Call in a critical section.
void wal_log_page(Relation sequence, const SequencePage& page)
{
    xl_seq_rec record = sequence_wal_record(sequence);
    XLogBeginInsert();
    XLogRegisterBuffer(0, page.buffer, REGBUF_WILL_INIT);
    XLogRegisterData(reinterpret_cast<char*>(&record), sizeof(record));
    XLogRegisterData(reinterpret_cast<char*>(page.header), page.length);
    const XLogRecPtr end =
        XLogInsert(RM_SEQ_ID, XLOG_SEQ_LOG); // the macro below repeats its argument
    PageSetLSN(BufferGetPage(page.buffer), end);
}

// Draws `count` values and returns the first. Raises sequence_generator_limit_exceeded if fewer are
// left. Mirrors nextval_internal() for a sequence whose CACHE equals `count`.
int64 draw_from_page(Relation sequence, int64 max_value, int count)
{
    const SequencePage page = lock_page(sequence);
    const bool is_called = page.data->is_called;
    const int64 first = page.data->last_value + (is_called ? 1 : 0);
    if (page.data->last_value > max_value - count)
        ereport(ERROR, (errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
                        errmsg("sequence \"%s\" has not enough values left",
                               RelationGetRelationName(sequence))));
    const int64 last = first + count - 1;

    // WAL covers wal_logged_ahead values more than are drawn. The first draw after a checkpoint is
    // logged again, because replay from the checkpoint would not restore the value otherwise.
    const bool must_log = !is_called || page.data->log_cnt < count ||
                          PageGetLSN(BufferGetPage(page.buffer)) <= GetRedoRecPtr();
    const int64 logged = must_log ? last + Min(wal_logged_ahead, max_value - last)
                                  : page.data->last_value + page.data->log_cnt;

    // The tuple first gets the state for WAL, which is ahead, and then the real one. The exclusive
    // buffer lock hides the first from readers.
    START_CRIT_SECTION();
    MarkBufferDirty(page.buffer);
    page.data->is_called = true;
    if (must_log && RelationNeedsWAL(sequence)) {
        page.data->last_value = logged;
        page.data->log_cnt = 0;
        wal_log_page(sequence, page);
    }
    page.data->last_value = last;
    page.data->log_cnt = logged - last;
    END_CRIT_SECTION();

    UnlockReleaseBuffer(page.buffer);
    return first;
}

} // namespace

int64 draw_values(Oid sequence, int count)
{
    // The lock is held to the end of the transaction, so that ALTER SEQUENCE waits.
    const Relation relation = relation_open(sequence, RowExclusiveLock);
    const int64 first = draw_from_page(relation, check_options(sequence), count);
    relation_close(relation, NoLock);
    return first;
}

int64 last_drawn_value(Oid sequence)
{
    LOCAL_FCINFO(fcinfo, 1);
    InitFunctionCallInfoData(*fcinfo, nullptr, 1, InvalidOid, nullptr, nullptr);
    fcinfo->args[0].value = ObjectIdGetDatum(sequence);
    fcinfo->args[0].isnull = false;
    const Datum value = pg_sequence_last_value(fcinfo);
    return fcinfo->isnull ? 0 : DatumGetInt64(value);
}

void set_next_value(Oid sequence, int64 value)
{
    (void)DirectFunctionCall3(setval3_oid, ObjectIdGetDatum(sequence), Int64GetDatum(value),
                              BoolGetDatum(false));
}

} // namespace outbox::pg
