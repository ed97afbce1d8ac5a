#include "consumer/read_page.hpp"

#include "pg/injection_point.hpp"

namespace outbox {

LogView open_log_view(Id above)
{
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        LogView view;
        view.log = open_log_for_reading(above);
        pg::injection_point("log");
        view.log_snapshot = take_log_snapshot();
        if (contains_all_partitions(view.log))
            return view;
        close_log_view(view);
    }
}

void close_log_view(LogView& view)
{
    release_log_snapshot(view.log_snapshot);
    close_log(view.log);
}

void set_target(Cursor& cursor, const LogSnapshot& log_snapshot)
{
    if (cursor.target)
        return;
    pg::PallocVector<RunningRange> running;
    running.reserve(log_snapshot.running.size() + 2 * cursor.passed.running.size());
    running.set_size(make_running_ranges(log_snapshot.running, cursor.passed, running.data()));
    cursor.target = Position{log_snapshot.seq, running.view()};
    cursor.last_id = 0;
}

void pass_target(Cursor& cursor)
{
    cursor.passed = *cursor.target;
    cursor.target.reset();
    cursor.last_id = 0;
}

} // namespace outbox
