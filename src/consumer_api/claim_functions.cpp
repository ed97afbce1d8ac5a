// The SQL functions of a worker: claim, consume, ack, fail, heartbeat, release.
#include "consumer_api/message_result_set.hpp"
#include "core/limits.hpp"
#include "delivery/settle.hpp"
#include "extension/guc.hpp"
#include "extension/owner_spi.hpp"
#include "pg/arguments.hpp"
#include "pg/datum.hpp"
#include "pg/exceptions.hpp"
#include "upcast/upcast.hpp"

namespace outbox {

namespace {

// Returns argument 0, lock_token. Raises null_value_not_allowed.
int64 token_argument(FunctionCallInfo fcinfo)
{
    const auto token = pg::optional_argument(fcinfo, 0);
    if (!token)
        pg::raise_null_argument("lock_token");
    return DatumGetInt64(*token);
}

// Returns the lease in microseconds, std::nullopt for NULL. Raises invalid_parameter_value if it is
// out of range.
std::optional<int64> lease_argument(std::optional<Datum> lease)
{
    if (!lease)
        return std::nullopt;
    const int64 length = pg::to_microseconds(*DatumGetIntervalP(*lease));
    if (length < limits::min_lease || length > limits::max_lease)
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("lease must be between 1 second and 1 day")));
    return length;
}

// Returns outbox.lease in microseconds.
int64 default_lease_us()
{
    constexpr int64 us_per_ms = 1000;
    return settings::lease * us_per_ms;
}

// Returns the worker's name: the argument, or application_name with the pid, or the pid. Raises
// invalid_parameter_value if the argument is empty or too long.
Datum worker_argument(std::optional<Datum> worker)
{
    if (!worker)
        return PointerGetDatum(
            cstring_to_text(application_name != nullptr && *application_name != '\0'
                                ? psprintf("%s (pid %d)", application_name, MyProcPid)
                                : psprintf("pid %d", MyProcPid)));
    const std::string_view name = pg::to_view(*worker);
    if (name.empty() || name.size() > limits::max_worker_bytes)
        ereport(ERROR,
                (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                 errmsg("worker must have between 1 and %d bytes", limits::max_worker_bytes)));
    return *worker;
}

// Returns the error text, cut to limits::max_error_bytes. Raises null_value_not_allowed.
Datum error_argument(std::optional<Datum> error)
{
    if (!error)
        pg::raise_null_argument("error");
    const std::string_view text = pg::to_view(*error);
    const int length =
        pg_mbcliplen(text.data(), static_cast<int>(text.size()), limits::max_error_bytes);
    return PointerGetDatum(cstring_to_text_with_len(text.data(), length));
}

// Returns retry_in in microseconds, std::nullopt for NULL. Raises invalid_parameter_value if it is
// out of range.
std::optional<int64> retry_in_argument(std::optional<Datum> retry_in)
{
    if (!retry_in)
        return std::nullopt;
    const int64 length = pg::to_microseconds(*DatumGetIntervalP(*retry_in));
    if (length < 0 || length > limits::max_retry_in)
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("retry_in must be between 0 and 365 days")));
    return length;
}

// Returns the elements of ids. Raises null_value_not_allowed for NULL or a NULL element,
// program_limit_exceeded for more than limits::max_batch_size.
std::span<const int64> ids_argument(std::optional<Datum> ids)
{
    if (!ids)
        pg::raise_null_argument("ids");
    return pg::from_bigint_array(*ids, "ids", limits::max_batch_size);
}

// Reads the arguments error, retry_in and dead, of which `first` is the number of the first. Raises
// the errors of error_argument() and retry_in_argument().
Failure failure_arguments(FunctionCallInfo fcinfo, int first)
{
    const auto dead = pg::optional_argument(fcinfo, first + 2);
    return {error_argument(pg::optional_argument(fcinfo, first)),
            retry_in_argument(pg::optional_argument(fcinfo, first + 1)),
            dead && DatumGetBool(*dead)};
}

} // namespace

} // namespace outbox

OUTBOX_SQL_FUNCTION(outbox_claim)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        PreventCommandIfReadOnly("outbox_claim()");
        const ClaimRequest request = {
            checked_consumer_name(pg::optional_argument(fcinfo, 0)),
            batch_size_argument(pg::optional_argument(fcinfo, 1)),
            lease_argument(pg::optional_argument(fcinfo, 2)).value_or(default_lease_us()),
            worker_argument(pg::optional_argument(fcinfo, 3)), false};
        ResultSetReceiver result(fcinfo);
        as_owner([&] { claim_with_upcasting(request, result); });
        return Datum{0};
    });
}

OUTBOX_SQL_FUNCTION(outbox_consume)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        PreventCommandIfReadOnly("outbox_consume()");
        const ClaimRequest request = {checked_consumer_name(pg::optional_argument(fcinfo, 0)),
                                      batch_size_argument(pg::optional_argument(fcinfo, 1)), 0,
                                      worker_argument(std::nullopt), true};
        ResultSetReceiver result(fcinfo);
        as_owner([&] { claim_with_upcasting(request, result); });
        return Datum{0};
    });
}

OUTBOX_SQL_FUNCTION(outbox_ack)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        PreventCommandIfReadOnly("outbox_ack()");
        const int64 token = token_argument(fcinfo);
        const auto given = pg::optional_argument(fcinfo, 1);
        const std::span<const int64> ids = given ? ids_argument(given) : std::span<const int64>{};
        int count = 0;
        as_owner([&] { count = ack_messages(token, given ? &ids : nullptr); });
        PG_RETURN_INT32(count);
    });
}

OUTBOX_SQL_FUNCTION(outbox_fail)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        PreventCommandIfReadOnly("outbox_fail()");
        const int64 token = token_argument(fcinfo);
        const auto given = pg::optional_argument(fcinfo, 1);
        if (!given)
            pg::raise_null_argument("id");
        const int64 id = DatumGetInt64(*given);
        const Failure failure = failure_arguments(fcinfo, 2);
        FailResult failed = {};
        as_owner([&] { failed = fail_messages(token, {&id, 1}, {&failure, 1}); });
        PG_RETURN_TEXT_P(cstring_to_text(failed.dead > 0 ? "dead" : "retry"));
    });
}

// outbox_fail() with an array of ids. Returns the number of failed messages.
OUTBOX_SQL_FUNCTION(outbox_fail_many)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        PreventCommandIfReadOnly("outbox_fail()");
        const int64 token = token_argument(fcinfo);
        const std::span<const int64> ids = ids_argument(pg::optional_argument(fcinfo, 1));
        const Failure failure = failure_arguments(fcinfo, 2);
        FailResult failed = {};
        as_owner([&] { failed = fail_messages(token, ids, {&failure, 1}); });
        PG_RETURN_INT32(failed.count);
    });
}

OUTBOX_SQL_FUNCTION(outbox_heartbeat)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        PreventCommandIfReadOnly("outbox_heartbeat()");
        const int64 token = token_argument(fcinfo);
        const auto lease = lease_argument(pg::optional_argument(fcinfo, 1));
        TimestampTz until = 0;
        as_owner([&] { until = heartbeat(token, lease); });
        PG_RETURN_TIMESTAMPTZ(until);
    });
}

OUTBOX_SQL_FUNCTION(outbox_release)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        PreventCommandIfReadOnly("outbox_release()");
        const int64 token = token_argument(fcinfo);
        int count = 0;
        as_owner([&] { count = release_batch(token); });
        PG_RETURN_INT32(count);
    });
}
