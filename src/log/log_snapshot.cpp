#include "log/log_snapshot.hpp"

#include "extension/relations.hpp"
#include "pg/injection_point.hpp"
#include "pg/sequence.hpp"

extern "C" {
#include "access/transam.h"
#include "access/xact.h"
}

namespace outbox {

namespace {

// Mirrors widen_snapshot_xid(): an xid of a snapshot is not later than `next`, and less than 2^31
// transactions before it.
Xid widen_xid(TransactionId xid, FullTransactionId next)
{
    const uint32 epoch = EpochFromFullTransactionId(next);
    const bool before_wraparound = xid > XidFromFullTransactionId(next);
    return U64FromFullTransactionId(
        FullTransactionIdFromEpochAndXid(before_wraparound ? epoch - 1 : epoch, xid));
}

// Listed as running, or above the snapshot: its xmax is the latest completed plus one, and running
// transactions beyond that stand in no list. This transaction stands in none either.
std::span<XidRange> running_xids_at(Snapshot snapshot, FullTransactionId next)
{
    auto* ranges = static_cast<XidRange*>(palloc(sizeof(XidRange) * (snapshot->xcnt + 2)));
    std::size_t count = 0;
    for (uint32 i = 0; i < snapshot->xcnt; ++i) {
        const Xid xid = widen_xid(snapshot->xip[i], next);
        ranges[count++] = {xid, xid + 1};
    }
    ranges[count++] = {widen_xid(snapshot->xmax, next), U64FromFullTransactionId(next)};
    const FullTransactionId own = GetTopFullTransactionIdIfAny();
    if (FullTransactionIdIsValid(own))
        ranges[count++] = {U64FromFullTransactionId(own), U64FromFullTransactionId(own) + 1};
    return {ranges, count};
}

} // namespace

// The order matters: an old snapshot, or the next xid before the sequence, loses events. A row that
// the snapshot does not show and whose id is not beyond the sequence belongs to a transaction that
// had its xid before it drew the id, hence before the sequence was read, hence below the next xid:
// it is either ended, and known as such to the snapshot, or among the running.
LogSnapshot take_log_snapshot()
{
    CommandCounterIncrement(); // events of this transaction are visible, and counted as running
    LogSnapshot log_snapshot;
    log_snapshot.snapshot = RegisterSnapshot(GetLatestSnapshot());
    pg::injection_point("snapshot");
    log_snapshot.seq = pg::last_drawn_value(extension_relations().log_sequence);
    pg::injection_point("sequence");
    log_snapshot.running = running_xids_at(log_snapshot.snapshot, ReadNextFullTransactionId());
    pg::injection_point("xids");
    return log_snapshot;
}

void release_log_snapshot(LogSnapshot& log_snapshot)
{
    UnregisterSnapshot(log_snapshot.snapshot);
    log_snapshot.snapshot = nullptr;
}

} // namespace outbox
