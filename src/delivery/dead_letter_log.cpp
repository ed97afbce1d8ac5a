#include "delivery/dead_letter_log.hpp"

#include "extension/owner_spi.hpp"
#include "pg/datum.hpp"
#include "pg/encoding.hpp"

#include <cstring>

namespace outbox {

namespace {

// A consumer with a broken handler makes a dead letter per message: without a limit they would fill
// the log.
constexpr int max_lines_per_window = 10;
constexpr int64 log_window_us = 10 * USECS_PER_SEC; // microseconds
constexpr int max_listed_ids = 20;
constexpr int max_error_bytes = 200;

// The limit of this process. The next line counts the ids that it left out.
struct LogRateLimit {
    TimestampTz window_end = 0;
    int lines_left = 0;
    int64 omitted_ids = 0;

    // Returns whether a line may be logged now. If not, adds `count` to omitted_ids.
    bool allows(TimestampTz now, Id count)
    {
        if (now >= window_end || now < window_end - log_window_us) {
            window_end = now + log_window_us;
            lines_left = max_lines_per_window;
        }
        if (lines_left-- > 0)
            return true;
        omitted_ids += count;
        return false;
    }
};

// Returns the first max_listed_ids ids as text, then an ellipsis if there are more.
const char* format_ids(IdRanges ids)
{
    StringInfoData list;
    initStringInfo(&list);
    int listed = 0;
    for (const IdRange& range : ids)
        for (Id id = range.from; id < range.upto; ++id) {
            if (++listed > max_listed_ids) {
                appendStringInfoString(&list, " …");
                return list.data;
            }
            appendStringInfo(&list, "%s" INT64_FORMAT, listed > 1 ? ", " : "", id);
        }
    return list.data;
}

// Returns the text cut to max_error_bytes, with control characters replaced: it comes from a worker
// or an endpoint.
const char* shorten_error(Datum error)
{
    char* message = TextDatumGetCString(error);
    message[pg_mbcliplen(message, static_cast<int>(std::strlen(message)), max_error_bytes)] = '\0';
    return pg::replace_control_characters(message);
}

} // namespace

void log_dead_letters(int32 consumer, IdRanges ids, Datum error)
{
    static LogRateLimit limit;
    static constinit Statement find{"SELECT name FROM _outbox.consumers WHERE consumer_id = $1",
                                    {INT4OID}};

    const Id count = count_ids(ids);
    if (count == 0 || !limit.allows(GetCurrentTimestamp(), count))
        return;
    const Datum values[] = {Int32GetDatum(consumer)};
    if (find.execute_with_latest_snapshot(values) == 0)
        return;
    const char* name = TextDatumGetCString(ResultRow(0).get(1));
    const int64 omitted_ids = limit.omitted_ids;
    limit.omitted_ids = 0;
    ereport(LOG_SERVER_ONLY,
            (errmsg_internal("outbox: consumer \"%s\" has given up %s: %s", name,
                             count == 1 ? "an event" : psprintf(INT64_FORMAT " events", count),
                             shorten_error(error)),
             errdetail_internal(
                 "ids: %s%s", format_ids(ids),
                 omitted_ids > 0
                     ? psprintf("; " INT64_FORMAT " earlier ones were not logged", omitted_ids)
                     : ""),
             errhidestmt(true), // its parameters may contain payloads
             errhint("They are in outbox_messages_dlq; outbox_redrive() tries them again.")));
}

} // namespace outbox
