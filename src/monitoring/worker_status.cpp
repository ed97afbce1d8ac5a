// What outbox_status() cannot learn from SQL.
#include "extension/preload.hpp"
#include "ipc/worker_registry.hpp"
#include "pg/exceptions.hpp"

namespace outbox {

namespace {

const char* reason_of(pg::WorkerAbsence vacancy)
{
    switch (vacancy) {
    case pg::WorkerAbsence::no_worker_slot:
        return "no worker slot is free";
    case pg::WorkerAbsence::stepped_aside:
        return "a command keeps it away";
    case pg::WorkerAbsence::on_sigterm:
    case pg::WorkerAbsence::no_extension:
    case pg::WorkerAbsence::none:
        break;
    }
    return nullptr;
}

} // namespace

} // namespace outbox

OUTBOX_SQL_FUNCTION(outbox_is_preloaded)
{
    return outbox::pg::entry([&] { PG_RETURN_BOOL(outbox::pg::preloaded); });
}

OUTBOX_SQL_FUNCTION(outbox_relay_status)
{
    return outbox::pg::entry([&] {
        using namespace outbox;
        TupleDesc descriptor;
        if (get_call_result_type(fcinfo, nullptr, &descriptor) != TYPEFUNC_COMPOSITE)
            elog(ERROR, "outbox_relay_status() must return a row");
        const int pid = pg::relay_pid(MyDatabaseId);
        const char* reason = reason_of(pg::vacancy_of_database(MyDatabaseId));
        Datum values[] = {BoolGetDatum(pg::is_launcher_there()), Int32GetDatum(pid),
                          reason != nullptr ? CStringGetTextDatum(reason) : Datum{0},
                          BoolGetDatum(pg::database_lacks_maintenance(MyDatabaseId))};
        bool nulls[] = {false, pid == 0, reason == nullptr, false};
        return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls));
    });
}
