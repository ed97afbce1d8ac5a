// Reading on: from a consumer's cursor, page by page, to the newest state of the log.
#pragma once

#include "consumer/consumer.hpp"
#include "log/log_snapshot.hpp"

namespace outbox {

// How many rows are read at most when the filter takes none of them.
inline constexpr int64 max_rows_examined = 100000;

// From how many rows on that nobody wanted it is worth a row to remember that.
inline constexpr int64 save_cursor_threshold = 1000;

struct PageResult {
    int64 examined = 0;
    int64 accepted = 0;
    bool at_end = false; // nothing that was committed is left

    // Nothing taken, but so much read that the cursor should be kept.
    bool should_save_cursor() const { return accepted > 0 || examined >= save_cursor_threshold; }
};

// The log as of a moment.
struct LogView {
    OpenLog log;
    LogSnapshot log_snapshot;
};

// With what the archive has above this id.
LogView open_log_view(Id above);
void close_log_view(LogView& view);

// Fixes the cursor's next target as of this moment, if it has none.
void set_target(Cursor& cursor, const LogSnapshot& log_snapshot);

// The target is drained.
void pass_target(Cursor& cursor);

// Reads until `take` has taken `limit` messages, which it may lower on the way, and moves the
// cursor; or until `budget` messages were looked at. `take` says whether it has taken the message.
// Needs the consumer's lock if the cursor is to be kept; call inside pg::as_owner().
template <typename Accept>
PageResult read_page(Cursor& cursor, const Filter& filter, const int64& limit, int64 budget,
                     Accept&& accept)
{
    PageResult page;
    const auto may_continue = [&] { return page.accepted < limit && page.examined < budget; };
    LogView view = open_log_view(cursor.read_upto());
    // At most twice: the rest of an older target, and if nothing is left of that, the newest.
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
