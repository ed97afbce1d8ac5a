// SQL functions that read the worker registry, for outbox_status().
#include "extension/preload.hpp"
#include "ipc/worker_registry.hpp"
#include "pg/exceptions.hpp"

namespace outbox {

namespace {

// Returns why a database has no relay; nullptr if it has one, or for a reason that is no fault.
const char* absence_reason(ipc::WorkerAbsence absence)
{
    switch (absence) {
    case ipc::WorkerAbsence::no_worker_slot:
        return "no worker slot is free";
    case ipc::WorkerAbsence::stopped_for_command:
        return "workers are stopped for a command";
    case ipc::WorkerAbsence::terminated:
    case ipc::WorkerAbsence::no_extension:
    case ipc::WorkerAbsence::none:
        break;
    }
    return nullptr;
}

} // namespace

} // namespace outbox

OUTBOX_SQL_FUNCTION(outbox_is_preloaded)
{
    return outbox::pg::sql_entry([&] { PG_RETURN_BOOL(outbox::preloaded); });
}

// Internal: whether the launcher runs, the relay's pid, why there is none, and whether a
// maintenance worker is missing. From shared memory.
OUTBOX_SQL_FUNCTION(outbox_relay_status)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        TupleDesc descriptor;
        if (get_call_result_type(fcinfo, nullptr, &descriptor) != TYPEFUNC_COMPOSITE)
            elog(ERROR, "outbox_relay_status() must return a row");
        const int pid = ipc::relay_pid(MyDatabaseId);
        const char* reason = absence_reason(ipc::absence_of_database(MyDatabaseId));
        Datum values[] = {BoolGetDatum(ipc::is_launcher_running()), Int32GetDatum(pid),
                          reason != nullptr ? CStringGetTextDatum(reason) : Datum{0},
                          BoolGetDatum(ipc::database_lacks_maintenance_worker(MyDatabaseId))};
        bool nulls[] = {false, pid == 0, reason == nullptr, false};
        return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls));
    });
}
