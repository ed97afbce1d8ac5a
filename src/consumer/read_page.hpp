// Reads the log page by page, from a consumer's cursor to the newest state.
#pragma once

#include "consumer/consumer.hpp"
#include "log/log_snapshot.hpp"

namespace outbox {

// Maximum rows that a page examines, so that a claim with a rarely matching filter ends.
inline constexpr int64 max_rows_examined = 100000;

// Examined rows without a match from which on storing the cursor is worth a row in _outbox.batches.
inline constexpr int64 save_cursor_threshold = 1000;

// The result of read_page(), in numbers of rows.
struct PageResult {
    int64 examined = 0;
    int64 accepted = 0;
    bool at_end = false; // no committed row is left

    // Returns whether the cursor has moved far enough to be stored.
    bool should_save_cursor() const { return accepted > 0 || examined >= save_cursor_threshold; }
};

// The open log and a log snapshot that was taken under its locks.
struct LogView {
    OpenLog log;
    LogSnapshot log_snapshot;
};

// Opens the log, and archived partitions with ids above this one, with AccessShareLock, and takes a
// log snapshot. Repeats both while a partition is attached in between. Call inside as_owner().
LogView open_log_view(Id above);

// Unregisters the snapshot and closes the relations. The locks stay until the end of the
// transaction.
void close_log_view(LogView& view);

// Sets the cursor's target from the log snapshot, if it has none. Allocates the target's ranges in
// the current memory context.
void set_target(Cursor& cursor, const LogSnapshot& log_snapshot);

// Makes the drained target the passed position. The cursor has no target then.
void pass_target(Cursor& cursor);

// Reads messages in id order and moves the cursor in memory, until `accept` has accepted `limit`
// messages that match the filter, `budget` rows were examined, or the log is drained. `accept`
// returns whether it accepts the message, and may lower `limit`. Locks the log like
// open_log_view(). Storing the cursor requires the consumer's lock. Call inside as_owner().
template <typename Accept>
PageResult read_page(Cursor& cursor, const Filter& filter, const int64& limit, int64 budget,
                     Accept&& accept)
{
    PageResult page;
    const auto may_continue = [&] { return page.accepted < limit && page.examined < budget; };
    LogView view = open_log_view(cursor.read_upto());
    // At most two rounds: the rest of an older target, and a new target if that yields nothing.
    for (bool newest = false; !newest && page.accepted == 0 && may_continue();) {
        newest = !cursor.target;
        set_target(cursor, view.log_snapshot);
        TargetScan scan(view.log, view.log_snapshot.snapshot, cursor);
        const Message* message = nullptr;
        while (may_continue() && (message = scan.next()) != nullptr) {
            ++page.examined;
            cursor.last_id = message->id();
            if (filter.matches(*message) && accept(*message))
                ++page.accepted;
        }
        scan.close();
        if (message != nullptr || !may_continue())
            break;
        pass_target(cursor);
        page.at_end = newest;
    }
    close_log_view(view);
    return page;
}

} // namespace outbox
