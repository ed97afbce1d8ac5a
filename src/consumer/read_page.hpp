// Reading on: from a consumer's cursor, page by page, to the newest state of the log.
#pragma once

#include "consumer/consumer.hpp"
#include "log/log_snapshot.hpp"

namespace outbox {

// How many rows are read at most when the filter takes none of them.
inline constexpr int64 reading_budget = 100000;

// From how many rows on that nobody wanted it is worth a row to remember that.
inline constexpr int64 worth_remembering = 1000;

struct Page {
    int64 examined = 0;
    int64 taken = 0;
    bool at_end = false; // nothing that was committed is left

    // Nothing taken, but so much read that the cursor should be kept.
    bool is_worth_remembering() const { return taken > 0 || examined >= worth_remembering; }
};

// The log as of a moment.
struct View {
    OpenLog log;
    pg::LogSnapshot moment;
};

// With what the archive has above this id.
View open_view(Id above);
void close_view(View& view);

// Fixes the cursor's next target as of this moment, if it has none.
void set_target(Cursor& cursor, const pg::LogSnapshot& moment);

// The target is drained.
void pass_target(Cursor& cursor);

// Reads until `take` has taken `limit` messages, which it may lower on the way, and moves the
// cursor; or until `budget` messages were looked at. `take` says whether it has taken the message.
// Needs the consumer's lock if the cursor is to be kept; call inside pg::as_owner().
template <typename Take>
Page read_page(Cursor& cursor, const Filter& filter, const int64& limit, int64 budget, Take&& take)
{
    Page page;
    const auto goes_on = [&] { return page.taken < limit && page.examined < budget; };
    View view = open_view(cursor.read_upto());
    // At most twice: the rest of an older target, and if nothing is left of that, the newest.
    for (bool newest = false; !newest && page.taken == 0 && goes_on();) {
        newest = !cursor.target;
        set_target(cursor, view.moment);
        TargetScan scan(view.log, view.moment.snapshot, cursor);
        const Message* message = nullptr;
        while (goes_on() && (message = scan.next()) != nullptr) {
            ++page.examined;
            cursor.last_id = message->id();
            if (filter.takes(*message) && take(*message))
                ++page.taken;
        }
        scan.close();
        if (message != nullptr || !goes_on())
            break;
        pass_target(cursor);
        page.at_end = newest;
    }
    close_view(view);
    return page;
}

} // namespace outbox
