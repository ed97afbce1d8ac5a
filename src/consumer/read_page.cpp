#include "consumer/read_page.hpp"

#include "pg/injection_point.hpp"

namespace outbox {

View open_view(Id above)
{
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        View view;
        view.log = open_log_for_reading(above);
        pg::injection_point("log");
        view.moment = pg::take_log_snapshot();
        if (is_complete(view.log))
            return view;
        close_view(view);
    }
}

void close_view(View& view)
{
    pg::release(view.moment);
    close_log(view.log);
}

void set_target(Cursor& cursor, const pg::LogSnapshot& moment)
{
    if (cursor.target)
        return;
    pg::PallocVector<Running> running;
    running.reserve(moment.running.size() + 2 * cursor.passed.running.size());
    running.set_size(note_running(moment.running, cursor.passed, running.data()));
    cursor.target = Position{moment.seq, running.view()};
    cursor.last_id = 0;
}

void pass_target(Cursor& cursor)
{
    cursor.passed = *cursor.target;
    cursor.target.reset();
    cursor.last_id = 0;
}

} // namespace outbox
