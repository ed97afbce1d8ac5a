#include "delivery/dead_letter_log.hpp"

#include "extension/owner_spi.hpp"
#include "pg/datum.hpp"
#include "pg/encoding.hpp"

#include <cstring>

namespace outbox {

namespace {

constexpr int lines_at_once = 10;
constexpr int64 window = 10 * USECS_PER_SEC;
constexpr int most_ids = 20;
constexpr int most_of_error = 200;

// Per process. What was left out is told with the next line.
struct Limit {
    TimestampTz until = 0;
    int left = 0;
    int64 left_out = 0;

    bool admits(TimestampTz now, Id count)
    {
        if (now >= until || now < until - window) {
            until = now + window;
            left = lines_at_once;
        }
        if (left-- > 0)
            return true;
        left_out += count;
        return false;
    }
};

const char* list_of(IdRanges ids)
{
    StringInfoData list;
    initStringInfo(&list);
    int listed = 0;
    for (const IdRange& range : ids)
        for (Id id = range.from; id < range.upto; ++id) {
            if (++listed > most_ids) {
                appendStringInfoString(&list, " …");
                return list.data;
            }
            appendStringInfo(&list, "%s" INT64_FORMAT, listed > 1 ? ", " : "", id);
        }
    return list.data;
}

// What a worker or a receiver has said.
const char* beginning_of(Datum error)
{
    char* said = TextDatumGetCString(error);
    said[pg_mbcliplen(said, static_cast<int>(std::strlen(said)), most_of_error)] = '\0';
    return pg::in_one_line(said);
}

} // namespace

void log_dead_letters(int32 consumer, IdRanges ids, Datum error)
{
    static Limit limit;
    static constinit pg::Statement find{"SELECT name FROM _outbox.consumers WHERE consumer_id = $1",
                                        {INT4OID}};

    const Id count = count_ids(ids);
    if (count == 0 || !limit.admits(GetCurrentTimestamp(), count))
        return;
    const Datum values[] = {Int32GetDatum(consumer)};
    if (find.execute_with_latest_snapshot(values) == 0)
        return;
    const char* name = TextDatumGetCString(pg::Row(0).get(1));
    const int64 left_out = limit.left_out;
    limit.left_out = 0;
    ereport(LOG_SERVER_ONLY,
            (errmsg_internal("outbox: consumer \"%s\" has given up %s: %s", name,
                             count == 1 ? "an event" : psprintf(INT64_FORMAT " events", count),
                             beginning_of(error)),
             errdetail_internal(
                 "ids: %s%s", list_of(ids),
                 left_out > 0 ? psprintf("; " INT64_FORMAT " others before them", left_out) : ""),
             errhidestmt(true), // it may carry more than an operator is to see
             errhint("They are in outbox_messages_dlq; outbox_redrive() tries them again.")));
}

} // namespace outbox
