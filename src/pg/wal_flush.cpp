#include "pg/wal_flush.hpp"

extern "C" {
#include "access/xlog.h"
#include "replication/syncrep.h"
#include "storage/lwlock.h"
}

namespace outbox::pg {

// As SetHintBits() in heapam_visibility.c does, which must not set a hint bit before the commit
// record of an asynchronous commit is flushed.
XLogRecPtr commit_flush_position(uint64 full_xid)
{
    const auto xid = static_cast<TransactionId>(full_xid);
    const uint64 next = U64FromFullTransactionId(ReadNextFullTransactionId());
    constexpr uint64 half = uint64{1} << 31;
    XLogRecPtr position = InvalidXLogRecPtr;
    // An xid in the future comes from another cluster, before a dump and restore. An xid older than
    // the commit log is durable, because truncation follows a flush. (As in xid8funcs.c.)
    LWLockAcquire(XactTruncationLock, LW_SHARED);
    if (TransactionIdIsNormal(xid) && full_xid < next && next - full_xid < half &&
        !TransactionIdPrecedes(xid, oldest_clog_xid()))
        position = TransactionIdGetCommitLSN(xid);
    LWLockRelease(XactTruncationLock);
    return position;
}

void flush_wal_upto(XLogRecPtr position)
{
    if (!is_wal_flushed_upto(position))
        XLogFlush(position);
}

bool is_wal_flushed_upto(XLogRecPtr position)
{
    return position <= GetFlushRecPtr(nullptr);
}

XLogRecPtr last_commit_position()
{
    return XactLastCommitEnd;
}

bool has_synchronous_standbys()
{
    return SyncRepStandbyNames != nullptr && *SyncRepStandbyNames != '\0';
}

} // namespace outbox::pg
