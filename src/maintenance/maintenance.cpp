#include "maintenance/maintenance.hpp"

#include "extension/guc.hpp"
#include "extension/worker_transaction.hpp"
#include "ipc/wakeup.hpp"
#include "maintenance/cold_storage.hpp"
#include "pg/exceptions.hpp"
#include "pg/server_log.hpp"
#include "pg/shell_command.hpp"

extern "C" {
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "utils/wait_event.h"
}

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace outbox {

namespace {

// Limits on the rounds of a step in one run, and on consecutive rounds without effect, for example
// because a lock is taken. The next run continues.
constexpr int max_rounds = 200;
constexpr int max_idle_rounds = 6;
constexpr long first_pause = 100; // milliseconds; doubles with each idle round

// Limit for one command, and for starting another one: a command that takes longer is stuck, and
// the steps of maintenance are due again.
constexpr std::chrono::hours max_command_time{1};

// Result rows of a step's transaction, copied to the worker's memory, because they are logged after
// the commit. Further rows are dropped.
constexpr int max_lines = 32;
struct StepReport {
    struct Line {
        char object[2 * NAMEDATALEN + 2];
        char detail[256];
        bool changed;
    };
    Line all[max_lines];
    int count = 0;
    bool has_more = false;

    bool has_changed() const { return std::any_of(all, all + count, std::mem_fn(&Line::changed)); }

    void add(const char* object, const char* detail, bool changed)
    {
        if (count == max_lines)
            return;
        strlcpy(all[count].object, object, sizeof(all[count].object));
        strlcpy(all[count].detail, detail, sizeof(all[count].detail));
        all[count].changed = changed;
        ++count;
    }
};

const char* text_or_empty(const std::optional<Datum>& value)
{
    return value ? TextDatumGetCString(*value) : "";
}

// Calls _outbox.run_step() in the open transaction and adds its rows to the report.
void execute_step(const char* step, StepReport& lines)
{
    static constinit Statement run{
        "SELECT object, detail, changed, has_more FROM _outbox.run_step($1)", {TEXTOID}};
    const Datum values[] = {CStringGetTextDatum(step)};
    const uint64 count = run.execute(values);
    for (uint64 i = 0; i < count; ++i) {
        const ResultRow row(i);
        lines.add(text_or_empty(row.find(1)), text_or_empty(row.find(2)), DatumGetBool(row.get(3)));
        lines.has_more = lines.has_more || DatumGetBool(row.get(4));
    }
}

constinit pg::CustomWaitEvent maintenance_wait{"OutboxMaintenance"};

// Sleeps until the latch is set or the time is up, then resets the latch.
void wait_for_latch(long milliseconds)
{
    pg::guarded_call([&] {
        (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, milliseconds,
                        maintenance_wait.event_info());
        ResetLatch(MyLatch);
    });
}

// A row of _outbox.maintenance_steps().
struct Step {
    std::string name;
    bool touches_log;
    bool is_routine;
    bool follows_storing;
};

// Logs a line of a report: with DEBUG1 for a routine step, else with LOG.
void log_step_line(const Step& step, const StepReport::Line& line, const std::string& hint = {})
{
    pg::log_rate_limited(step.is_routine ? DEBUG1 : LOG,
                         "maintenance, " + step.name + ": " + line.object + ": " + line.detail,
                         hint);
}

// Logs the changes that have a detail.
void log_changes(const Step& step, const StepReport& lines)
{
    for (int i = 0; i < lines.count; ++i)
        if (lines.all[i].changed && lines.all[i].detail[0] != '\0')
            log_step_line(step, lines.all[i]);
}

// Logs the first obstacle only; outbox_status() lists all of them.
void log_first_obstacle(const Step& step, const StepReport& lines)
{
    for (int i = 0; i < lines.count; ++i)
        if (!lines.all[i].changed) {
            log_step_line(step, lines.all[i], "See SELECT * FROM outbox_status().");
            return;
        }
}

// Runs a step once, in a transaction of its own; logs its changes or its error. Returns true if it
// should run again: it has more to do, or a lock was not available.
bool run_round(const Step& step, StepReport& lines)
{
    const char* name = step.name.c_str();
    const auto rollback = in_transaction("maintenance", [&] { execute_step(name, lines); });
    // Autovacuum learns of deleted rows by these statistics, and this worker ends soon.
    pg::guarded_call([] { (void)pgstat_report_stat(true); });
    if (ShutdownRequestPending)
        return false;
    if (rollback && rollback->sqlstate != ERRCODE_LOCK_NOT_AVAILABLE) {
        pg::log_rate_limited(WARNING, "maintenance, " + step.name + ": " + rollback->message);
        return false;
    }
    log_changes(step, lines);
    return rollback || lines.has_more;
}

// Runs a step until it has no more to do, pausing after rounds that changed nothing. Logs the first
// obstacle of its last round.
void run_step(const Step& step)
{
    int idle = 0;
    for (int round = 0; round < max_rounds && idle < max_idle_rounds; ++round) {
        StepReport lines;
        const bool goes_on = run_round(step, lines);
        idle = lines.has_changed() ? 0 : idle + 1;
        if (!goes_on || idle == max_idle_rounds) {
            log_first_obstacle(step, lines);
            return;
        }
        if (idle > 0)
            wait_for_latch(first_pause << idle);
    }
}

struct ColdFile {
    std::string name, table, day;
};

// Lists files that outbox.archive_command has not stored yet, the ones never tried first, so that a
// slow or failing file does not hold up others. The pattern admits only names that are safe in a
// shell, as file_name_for() makes them. Returns at most 32 files, none after an error.
std::vector<ColdFile> list_files_to_store()
{
    static constinit Statement find{
        "SELECT file, partition::text, to_char(lower_bound AT TIME ZONE 'UTC', 'YYYY-MM-DD')"
        " FROM _outbox.cold_files"
        " WHERE stored_at IS NULL AND file || partition ~ '^[A-Za-z0-9_.%-]+$'"
        " ORDER BY tried_at NULLS FIRST, upper_bound"};
    constexpr int max_files = 32;
    struct {
        char name[MAXPGPATH], table[NAMEDATALEN], day[16];
    } found[max_files];
    uint64 count = 0;
    const auto rollback = in_transaction("maintenance", [&] {
        count = Min(find.execute(nullptr), static_cast<uint64>(max_files));
        for (uint64 i = 0; i < count; ++i) {
            const ResultRow row(i);
            strlcpy(found[i].name, TextDatumGetCString(row.get(1)), MAXPGPATH);
            strlcpy(found[i].table, TextDatumGetCString(row.get(2)), NAMEDATALEN);
            strlcpy(found[i].day, TextDatumGetCString(row.get(3)), sizeof(found[i].day));
        }
    });
    std::vector<ColdFile> files;
    if (!rollback)
        for (uint64 i = 0; i < count; ++i)
            files.push_back({found[i].name, found[i].table, found[i].day});
    return files;
}

// Executes a statement with the file's name as $1, in a transaction of its own.
std::optional<Rollback> execute_for_file(Statement& statement, const std::string& file)
{
    const char* name = file.c_str();
    return in_transaction("maintenance", [&] {
        const Datum values[] = {CStringGetTextDatum(name)};
        statement.execute(values);
    });
}

// Sets tried_at in _outbox.cold_files in a transaction of its own; an error is only logged.
void record_tried(const std::string& file)
{
    static constinit Statement tried{
        "UPDATE _outbox.cold_files SET tried_at = clock_timestamp() WHERE file = $1", {TEXTOID}};
    if (const auto rollback = execute_for_file(tried, file))
        pg::log_rate_limited(WARNING, "maintenance: could not record the attempt to store " + file +
                                          ": " + rollback->message);
}

// Sets stored_at in _outbox.cold_files in a transaction of its own; an error is only logged.
void record_stored(const std::string& file)
{
    static constinit Statement stored{
        "UPDATE _outbox.cold_files SET stored_at = clock_timestamp() WHERE file = $1", {TEXTOID}};
    if (const auto rollback = execute_for_file(stored, file))
        pg::log_rate_limited(
            WARNING, "maintenance: " + file +
                         " was stored, but this could not be recorded: " + rollback->message);
}

// Runs outbox.archive_command for each file, with no transaction open, and records tries and
// results. Returns true if a file was stored.
bool store_files()
{
    bool stored = false;
    const auto since = std::chrono::steady_clock::now();
    for (const ColdFile& file : list_files_to_store()) {
        if (ShutdownRequestPending || std::chrono::steady_clock::now() - since >= max_command_time)
            break;
        record_tried(file.name);
        // Without a command the file counts as stored: the setting was reset after the export.
        const std::string failure =
            *settings::archive_command == '\0'
                ? std::string()
                : pg::run_shell_command(archive_command_for(file.name, file.table, file.day),
                                        max_command_time);
        stored = stored || failure.empty();
        if (failure.empty())
            record_stored(file.name);
        else if (!ShutdownRequestPending)
            pg::log_rate_limited(WARNING,
                                 "outbox.archive_command failed for " + file.name + ": " + failure,
                                 "The partition stays until the command succeeds.");
    }
    return stored;
}

// Returns whether _outbox.maintenance_state has a row. It has none while a dump is being restored:
// the table is not dumped, and partitions would be archived before the consumers that need them are
// there.
bool may_maintain_log()
{
    static constinit Statement find{"SELECT FROM _outbox.maintenance_state LIMIT 1"};
    bool found = false;
    const auto rollback = in_transaction("maintenance", [&] { found = find.execute(nullptr) > 0; });
    return !rollback && found;
}

// Reads _outbox.maintenance_steps() in a transaction of its own. Returns nothing after an error.
std::vector<Step> list_steps()
{
    static constinit Statement list{
        "SELECT step, touches_log, is_routine, follows_storing FROM _outbox.maintenance_steps()"
        " ORDER BY position"};
    constexpr int max_steps = 32;
    struct {
        char name[NAMEDATALEN];
        bool touches_log, is_routine, follows_storing;
    } found[max_steps];
    uint64 count = 0;
    const auto rollback = in_transaction("maintenance", [&] {
        count = Min(list.execute(nullptr), static_cast<uint64>(max_steps));
        for (uint64 i = 0; i < count; ++i) {
            const ResultRow row(i);
            strlcpy(found[i].name, TextDatumGetCString(row.get(1)), NAMEDATALEN);
            found[i].touches_log = DatumGetBool(row.get(2));
            found[i].is_routine = DatumGetBool(row.get(3));
            found[i].follows_storing = DatumGetBool(row.get(4));
        }
    });
    std::vector<Step> steps;
    if (!rollback)
        for (uint64 i = 0; i < count; ++i)
            steps.push_back({found[i].name, found[i].touches_log, found[i].is_routine,
                             found[i].follows_storing});
    return steps;
}

} // namespace

void run_maintenance()
{
    const bool maintains_log = may_maintain_log();
    const std::vector<Step> steps = list_steps();
    for (const Step& step : steps) {
        if (ShutdownRequestPending)
            return;
        if (maintains_log || !step.touches_log)
            run_step(step);
    }
    // Last: outbox.archive_command may take an hour per file.
    if (maintains_log && store_files())
        for (const Step& step : steps)
            if (step.follows_storing)
                run_step(step);
}

} // namespace outbox

// Internal: a setting in seconds as interval; NULL for -1, which means forever.
OUTBOX_SQL_FUNCTION(outbox_setting)
{
    return outbox::pg::sql_entry([&]() -> Datum {
        const char* value = GetConfigOption(text_to_cstring(PG_GETARG_TEXT_PP(0)), false, false);
        if (std::strcmp(value, "-1") == 0)
            PG_RETURN_NULL();
        auto* interval = static_cast<Interval*>(palloc0(sizeof(Interval)));
        interval->time = int64{pg_strtoint32(value)} * USECS_PER_SEC;
        PG_RETURN_INTERVAL_P(interval);
    });
}

OUTBOX_SQL_FUNCTION(outbox_request_maintenance)
{
    return outbox::pg::sql_entry([&] {
        outbox::ipc::request_maintenance_at_commit();
        PG_RETURN_VOID();
    });
}
