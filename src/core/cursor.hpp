// A consumer's place in the log: a position and its exceptions. Everything up to `seq` has been
// handed out, except what the transactions that were running then may still bring.
//
// To move on, a claim fixes the next such state, the target, and drains the difference in the order
// of ids, page by page, up to `last_id`. When it is drained, the target is what has been passed.
#pragma once

#include "core/id_ranges.hpp"

#include <optional>

namespace outbox {

using Xid = std::uint64_t;

struct XidRange {
    Xid from;
    Xid upto; // not in it
};

// Transactions that were running. Whatever they bring has an id above `above`: they began after the
// sequence stood there. Rows with the same xid and a lower id are another cluster's, from before a
// dump and restore, and have been judged long ago.
struct RunningRange {
    Xid from;
    Xid upto; // not in it
    Id above;

    friend bool operator==(const RunningRange&, const RunningRange&) = default;
};

struct Position {
    Id seq = 0;
    std::span<const RunningRange> running; // sorted, disjoint

    const RunningRange* find(Xid xid) const noexcept;

    // Was this row behind the position, and its transaction's end known?
    bool covers(Xid xid, Id id) const noexcept;
};

struct Cursor {
    Position passed;
    std::optional<Position> target;
    Id last_id = 0; // up to where the target is drained

    // Has the row been handed out, if it was ever visible?
    bool has_passed(Xid xid, Id id) const noexcept;

    // Nothing above has been read. What is below and still to come is not committed yet, or was not
    // when the cursor passed it.
    Id read_upto() const noexcept { return target ? std::max(last_id, passed.seq) : passed.seq; }

    // Everything up to here is known: nothing at or below it can still come.
    Id known_upto() const noexcept;
};

// The transactions running now, given as ranges in any order, with what is known of those that were
// already running at `passed`. `out` needs room for ranges.size() + 2 * passed.running.size().
std::size_t make_running_ranges(std::span<XidRange> ranges, const Position& passed,
                                RunningRange* out) noexcept;

// The transactions that were running at `passed` and have ended at `target`: the stragglers.
// `out` needs room for the running ones of both.
std::size_t find_ended_ranges(const Position& passed, const Position& target,
                              RunningRange* out) noexcept;

} // namespace outbox
