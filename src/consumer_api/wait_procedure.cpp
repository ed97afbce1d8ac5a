// outbox_wait(): sleeps until a consumer has messages to claim, with no transaction open, whose
// snapshot would hold back vacuum.
#include "consumer_api/peek.hpp"

#include "extension/owner_spi.hpp"
#include "ipc/wakeup.hpp"
#include "pg/datum.hpp"
#include "pg/exceptions.hpp"
#include "pg/nonatomic_call.hpp"

namespace outbox {

namespace {

// Returns the timeout in milliseconds. Raises null_value_not_allowed, or invalid_parameter_value if
// it is out of range.
int64 timeout_argument(FunctionCallInfo fcinfo)
{
    constexpr int64 max_timeout_ms = int64{24} * 60 * 60 * 1000;
    if (PG_ARGISNULL(1))
        ereport(ERROR,
                (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("timeout must not be NULL")));
    const int64 milliseconds = pg::to_microseconds(*PG_GETARG_INTERVAL_P(1)) / 1000;
    if (milliseconds < 0 || milliseconds > max_timeout_ms)
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("timeout must be between 0 and 1 day")));
    return milliseconds;
}

// Calls check_readiness() in a transaction of its own, which is committed when this returns.
Readiness check_readiness_in_transaction(const char* consumer)
{
    Readiness readiness = {};
    PushActiveSnapshot(GetTransactionSnapshot());
    as_owner([&] { readiness = check_readiness(PointerGetDatum(cstring_to_text(consumer))); });
    PopActiveSnapshot();
    SPI_commit();
    return readiness;
}

// Waits until a claim would find messages. Returns false after so many milliseconds. No transaction
// is open while it sleeps. The caller calls stop_waiting_for_wakeup() afterwards.
bool wait_until_ready(const char* consumer, int64 milliseconds)
{
    const TimestampTz started = GetCurrentTimestamp();
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        ipc::prepare_to_wait_for_wakeup();
        const Readiness readiness = check_readiness_in_transaction(consumer);
        const int64 elapsed_ms = (GetCurrentTimestamp() - started) / 1000;
        if (readiness.ready || elapsed_ms >= milliseconds)
            return readiness.ready;
        ipc::wait_for_wakeup(static_cast<long>(
            Min(static_cast<int64>(readiness.recheck_after_ms), milliseconds - elapsed_ms)));
    }
}

} // namespace

} // namespace outbox

OUTBOX_SQL_FUNCTION(outbox_wait)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        pg::require_nonatomic_call(fcinfo, "outbox_wait()", "CALL it on its own, then claim.");
        const int64 timeout = timeout_argument(fcinfo);
        const Datum name = checked_consumer_name(
            PG_ARGISNULL(0) ? std::nullopt : std::optional<Datum>(PG_GETARG_DATUM(0)));
        // PortalContext outlives the transactions that end meanwhile.
        const std::string_view text = pg::to_view(name);
        const char* consumer =
            MemoryContextStrdup(PortalContext, pnstrdup(text.data(), text.size()));
        if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
            elog(ERROR, "SPI_connect failed");
        SPI_commit(); // releases the snapshot of the CALL
        const bool ready = wait_until_ready(consumer, timeout);
        ipc::stop_waiting_for_wakeup();
        SPI_finish();

        TupleDesc descriptor;
        if (get_call_result_type(fcinfo, nullptr, &descriptor) != TYPEFUNC_COMPOSITE)
            elog(ERROR, "outbox_wait() must return a row");
        Datum values[] = {BoolGetDatum(ready)};
        bool nulls[] = {false};
        return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls));
    });
}
