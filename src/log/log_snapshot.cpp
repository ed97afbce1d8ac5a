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

// Adds the epoch to an xid of a snapshot, which is at most `next` and less than 2^31 transactions
// older. Mirrors widen_snapshot_xid().
Xid widen_xid(TransactionId xid, FullTransactionId next)
{
    const uint32 epoch = EpochFromFullTransactionId(next);
    const bool before_wraparound = xid > XidFromFullTransactionId(next);
    return U64FromFullTransactionId(
        FullTransactionIdFromEpochAndXid(before_wraparound ? epoch - 1 : epoch, xid));
}

// Returns the xids that the snapshot lists as running, those from its xmax to `next`, and the own
// one, palloc'd. xmax is the latest completed xid plus one: running transactions above it are in no
// list. The own xid is in none either.
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

// The order of the steps is essential: an old snapshot, or a next xid that is read before the
// sequence, loses events. Take a row that the snapshot does not show, with an id up to seq. Its
// transaction was assigned an xid before it drew the id, hence before the sequence was read, hence
// below the next xid. So the snapshot knows that the transaction has ended, or it is in `running`.
LogSnapshot take_log_snapshot()
{
    CommandCounterIncrement(); // own events are visible, and count as running
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
