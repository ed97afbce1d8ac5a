// The cursor of a consumer: a position in the log plus the transactions that were running when the
// position was taken. Ids are drawn at insert and become visible at commit, in another order, so
// every committed row up to `seq` has been read, except those of the running transactions.
//
// To advance, a claim takes the current state of the log as target and drains the difference page
// by page in the order of ids, up to `last_id`. The drained target becomes the passed position.
//
// Plain values without I/O: batches store them, log_scan.cpp reads by them.
#pragma once

#include "core/id_ranges.hpp"

#include <optional>

namespace outbox {

// 64-bit transaction id with epoch: xid8 of the server.
using Xid = std::uint64_t;

// Half-open range of transaction ids.
struct XidRange {
    Xid from;
    Xid upto; // exclusive
};

// Transactions that were running when a position was taken. Their ids are greater than `above`, the
// position of the last cursor taken before they began. A row with such an xid and a lower id was
// written by another cluster, before a dump and restore: an older cursor has already passed it.
struct RunningRange {
    Xid from;
    Xid upto; // exclusive
    Id above;

    friend bool operator==(const RunningRange&, const RunningRange&) = default;
};

// State of the log at one time: the last drawn id and the transactions running then.
struct Position {
    Id seq = 0;
    std::span<const RunningRange> running; // sorted, disjoint; owned by the caller

    // Returns the range that contains the xid, or nullptr if it was not running.
    const RunningRange* find(Xid xid) const noexcept;

    // Returns true if the id is not above the position and its transaction had ended by then.
    bool covers(Xid xid, Id id) const noexcept;
};

// Progress of one consumer: the passed position and, while a target is drained, the target.
struct Cursor {
    Position passed;
    std::optional<Position> target;
    Id last_id = 0; // the target is drained up to this id

    // Returns true if the row has been read, provided that its transaction committed.
    bool has_passed(Xid xid, Id id) const noexcept;

    // Returns the greatest id up to which the log was read. Unread rows at or below it are late
    // commits: their transactions were running when the cursor passed them.
    Id read_upto() const noexcept { return target ? std::max(last_id, passed.seq) : passed.seq; }

    // Returns the id up to which no late commit is possible: every transaction that drew an id at
    // or below it had ended.
    Id known_upto() const noexcept;
};

// Writes the transactions running now to `out`, each with the `above` that it had at `passed`, or
// with the sequence of `passed` if it was not running then. `ranges` may have any order; it is
// sorted in place. Returns the number of ranges written, at most
// ranges.size() + 2 * passed.running.size().
std::size_t make_running_ranges(std::span<XidRange> ranges, const Position& passed,
                                RunningRange* out) noexcept;

// Writes the transactions that were running at `passed` and had ended at `target` to `out`: their
// rows are late commits. Returns the number of ranges written, at most
// passed.running.size() + target.running.size().
std::size_t find_ended_ranges(const Position& passed, const Position& target,
                              RunningRange* out) noexcept;

} // namespace outbox
