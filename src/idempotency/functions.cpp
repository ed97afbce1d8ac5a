// The SQL functions idempotency_begin(), _finish() and _abandon().
#include "core/limits.hpp"
#include "extension/fencing_token.hpp"
#include "extension/guc.hpp"
#include "extension/locks.hpp"
#include "extension/sqlstates.hpp"
#include "extension/tenant.hpp"
#include "idempotency/pending_attempts.hpp"
#include "ipc/wakeup.hpp"
#include "pg/arguments.hpp"
#include "pg/datum.hpp"
#include "pg/exceptions.hpp"

extern "C" {
#include "access/detoast.h"
#include "utils/datum.h"
}

#include <climits>

namespace outbox {

namespace {

constexpr int64 milliseconds = 1000; // in microseconds

// Longest pause between two checks of a key whose attempt was committed unfinished. The commit of
// its response ends the pause early; the end of its lease does not.
constexpr int64 max_poll_interval = 50 * milliseconds;

// The decisions that idempotency_begin() returns.
enum class Decision { execute, replay, conflict, in_progress };

struct BeginResult {
    Decision decision;
    int64 token = 0; // fencing token of an execution; 0: none, or the call has no key
    std::optional<StoredResponse> response;
};

// ---- Arguments

// Raises invalid_parameter_value for an empty text, string_data_right_truncation for one longer
// than limits::max_name_bytes.
void check_length(std::string_view text, const char* argument)
{
    if (text.empty())
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("%s must not be empty", argument)));
    if (text.size() > limits::max_name_bytes)
        ereport(ERROR, (errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION),
                        errmsg("%s is too long: %zu bytes, at most %d are allowed", argument,
                               text.size(), limits::max_name_bytes)));
}

// Returns a text argument. Raises an error if it is NULL, empty or too long.
Datum name_argument(FunctionCallInfo fcinfo, int number, const char* name)
{
    const Datum value = pg::required_argument(fcinfo, number, name);
    check_length(pg::to_view(value), name);
    return value;
}

// Returns the tenant that the call acts for. Raises insufficient_privilege for another tenant than
// the session's.
int64 tenant_argument(FunctionCallInfo fcinfo, int number)
{
    const auto tenant = pg::optional_argument(fcinfo, number);
    return effective_tenant(tenant ? std::optional(DatumGetInt64(*tenant)) : std::nullopt);
}

// Returns an interval argument in microseconds, `default_value` for NULL. Raises
// invalid_parameter_value below `min` or above `max`; `bounds` is for the message.
int64 interval_argument(FunctionCallInfo fcinfo, int number, const char* name, int64 default_value,
                        int64 min, int64 max, const char* bounds)
{
    const auto value = pg::optional_argument(fcinfo, number);
    if (!value)
        return default_value;
    const int64 length = pg::to_microseconds(*DatumGetIntervalP(*value));
    if (length < min || length > max)
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("%s must be between %s", name, bounds)));
    return length;
}

// Returns the key of a call: arguments 0 (scope) and 1 (key), and the tenant. Returns std::nullopt
// for a NULL key; raises null_value_not_allowed if is_key_required() for its scope.
std::optional<KeyName> key_argument(FunctionCallInfo fcinfo, int tenant_number)
{
    KeyName name = {};
    name.scope = name_argument(fcinfo, 0, "scope");
    name.tenant_id = tenant_argument(fcinfo, tenant_number);
    const auto key = pg::optional_argument(fcinfo, 1);
    if (!key) {
        if (is_key_required(name.scope))
            ereport(
                ERROR,
                (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("key must not be NULL"),
                 errhint("Pass a key, or answer an HTTP request without a key with status 400.")));
        return std::nullopt;
    }
    check_length(pg::to_view(*key), "key");
    name.key = *key;
    return name;
}

// ---- idempotency_begin()

// Arguments of a call with a key. Intervals are in microseconds.
struct BeginRequest {
    KeyName name;
    RequestHash request;
    int64 ttl;
    int64 lease;
    int64 wait;
};

// Returns the decision for a key in use; std::nullopt if the key is new or reusable.
std::optional<BeginResult> decide(const BeginRequest& request,
                                  const std::optional<StoredKey>& stored, TimestampTz now)
{
    if (!stored || stored->is_reusable(now))
        return std::nullopt;
    if (!(stored->request == request.request))
        return BeginResult{Decision::conflict, 0, std::nullopt};
    if (stored->response)
        return BeginResult{Decision::replay, 0, stored->response};
    return BeginResult{Decision::in_progress, 0, std::nullopt};
}

constexpr BeginResult in_progress = {Decision::in_progress, 0, std::nullopt};

// Begins an attempt with a new token. Its row is overwritten or inserted now, or inserted at
// commit. Returns in_progress if another transaction is deleting the row. The caller holds the lock
// of the key.
BeginResult start_attempt(const BeginRequest& request, bool overwrites)
{
    const int64 token = draw_tokens(1);
    Attempt attempt = {request.name, request.request, token, request.ttl, request.lease};
    attempt.is_written = overwrites || !can_defer_insert();
    // Overwritten now and not at commit: the attempt that is taken over detects it by the row's
    // token.
    if (overwrites && !overwrite_key(attempt))
        return in_progress;
    if (!overwrites && attempt.is_written)
        insert_key(attempt, std::nullopt);
    add_pending_attempt(attempt);
    return {Decision::execute, token, std::nullopt};
}

// Converts microseconds to milliseconds, rounded up.
int to_milliseconds(int64 time)
{
    return static_cast<int>((time + milliseconds - 1) / milliseconds);
}

// Sleeps until a commit sends a wakeup, at most for `max_wait` or max_poll_interval. Does not read
// the row.
void wait_for_row(int64 max_wait)
{
    ipc::prepare_to_wait_for_wakeup();
    ipc::wait_for_wakeup(to_milliseconds(Min(max_wait, max_poll_interval)));
    ipc::stop_waiting_for_wakeup();
}

// Checks a key once. With the lock there is always a result; without it, std::nullopt means that
// another transaction holds the lock and no committed row decides. Releases the lock unless an
// attempt was started.
std::optional<BeginResult> check_key(const BeginRequest& request, uint64 hash, bool locked)
{
    // While the lock is held, the row does not change, except that maintenance may delete it once
    // it has expired.
    const auto stored = find_key(request.name);
    auto result = decide(request, stored, GetCurrentTimestamp());
    if (!result && locked)
        result = start_attempt(request, stored.has_value());
    if (locked && result->decision != Decision::execute)
        unlock_idempotency_key(hash);
    return result;
}

// Returns true for a result other than in_progress, with which no wait is needed.
bool is_final(const std::optional<BeginResult>& result)
{
    return result && result->decision != Decision::in_progress;
}

// Waits up to request.wait for a result other than in_progress. An attempt whose transaction is
// open has the lock, which is waited for; an attempt committed unfinished has a row, which is
// polled.
BeginResult wait_for_result(const BeginRequest& request, uint64 hash,
                            std::optional<BeginResult> result)
{
    const MemoryContext caller = CurrentMemoryContext;
    // Each check copies the row into this context, which is reset before the next check.
    const MemoryContext check_context =
        AllocSetContextCreate(caller, "outbox idempotency key", ALLOCSET_SMALL_SIZES);
    const TimestampTz deadline = GetCurrentTimestamp() + request.wait;
    while (!is_final(result)) {
        const int64 max_wait = deadline - GetCurrentTimestamp();
        if (max_wait <= 0)
            return in_progress;
        if (result)
            wait_for_row(max_wait);
        MemoryContextReset(check_context);
        MemoryContextSwitchTo(check_context);
        // A lock obtained by waiting is used for this check. Released and tried again, it would
        // circulate among many waiting sessions.
        const bool locked = lock_idempotency_key(hash, result ? 0 : to_milliseconds(max_wait));
        CHECK_FOR_INTERRUPTS();
        result = check_key(request, hash, locked);
        MemoryContextSwitchTo(caller);
    }
    if (result->response && result->response->body)
        result->response->body = datumCopy(*result->response->body, false, -1);
    MemoryContextDelete(check_context);
    return *result;
}

// Begins an attempt if the key is free; otherwise waits up to request.wait for a decision. A key
// with an open attempt of this transaction is not waited for.
BeginResult begin_attempt(const BeginRequest& request)
{
    if (const Attempt* own = find_pending_attempt(request.name))
        return {own->request == request.request ? Decision::in_progress : Decision::conflict, 0,
                std::nullopt};
    const uint64 hash = request.name.hash();
    const auto result = check_key(request, hash, lock_idempotency_key(hash, 0));
    if (is_final(result) || request.wait == 0)
        return result.value_or(in_progress);
    return wait_for_result(request, hash, result);
}

const char* decision_name(Decision decision)
{
    switch (decision) {
    case Decision::execute:
        return "execute";
    case Decision::replay:
        return "replay";
    case Decision::conflict:
        return "conflict";
    case Decision::in_progress:
        return "in_progress";
    }
    pg_unreachable();
}

// Returns the row type idempotency_verdict. Raises datatype_mismatch if a user has altered it.
TupleDesc begin_result_type(FunctionCallInfo fcinfo)
{
    constexpr Oid types[] = {TEXTOID, INT8OID, INT4OID, JSONBOID, INT4OID};
    TupleDesc descriptor;
    bool fits = get_call_result_type(fcinfo, nullptr, &descriptor) == TYPEFUNC_COMPOSITE &&
                descriptor->natts == static_cast<int>(std::size(types));
    for (int i = 0; fits && i < descriptor->natts; ++i)
        fits = TupleDescAttr(descriptor, i)->atttypid == types[i];
    if (!fits)
        ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
                        errmsg("type idempotency_verdict has been altered")));
    return BlessTupleDesc(descriptor);
}

// Returns the row of idempotency_begin(): decision, token, and the stored status and body. Its last
// column is the HTTP status to answer with, NULL for execute.
Datum to_result_tuple(FunctionCallInfo fcinfo, const BeginResult& result)
{
    constexpr int conflict_status = 409, too_early_status = 425;
    const bool executes = result.decision == Decision::execute;
    const auto& response = result.response;
    Datum values[] = {CStringGetTextDatum(decision_name(result.decision)),
                      Int64GetDatum(result.token),
                      Int32GetDatum(response ? response->status_code : 0),
                      response ? response->body.value_or(Datum{0}) : Datum{0},
                      Int32GetDatum(response                                ? response->status_code
                                    : result.decision == Decision::conflict ? conflict_status
                                                                            : too_early_status)};
    bool nulls[] = {false, result.token == 0, !response, !response || !response->body, executes};
    return HeapTupleGetDatum(heap_form_tuple(begin_result_type(fcinfo), values, nulls));
}

// Positions of the arguments that follow scope, key and request.
enum : int { arg_tenant_id = 3, arg_ttl, arg_lease, arg_wait };

// Runs idempotency_begin(); `read_request` reads argument 2. Raises an error in a read-only
// transaction. A call without a key is always to execute.
Datum begin_call(FunctionCallInfo fcinfo, RequestHash (*read_request)(FunctionCallInfo))
{
    PreventCommandIfReadOnly("idempotency_begin()");
    const auto name = key_argument(fcinfo, arg_tenant_id);
    const RequestHash hash = read_request(fcinfo);
    const int64 ttl =
        interval_argument(fcinfo, arg_ttl, "ttl", int64{settings::idempotency_ttl} * USECS_PER_SEC,
                          limits::min_lease, limits::max_idempotency_ttl, "1 second and 366 days");
    const int64 lease = interval_argument(
        fcinfo, arg_lease, "lease", int64{settings::idempotency_lease} * milliseconds,
        limits::min_lease, limits::max_lease, "1 second and 1 day");
    const int64 wait =
        interval_argument(fcinfo, arg_wait, "wait", 0, 0, limits::max_wait, "0 and 1 hour");
    const BeginResult result = name ? begin_attempt(BeginRequest{*name, hash, ttl, lease, wait})
                                    : BeginResult{Decision::execute, 0, std::nullopt};
    return to_result_tuple(fcinfo, result);
}

// ---- idempotency_finish() and idempotency_abandon()

// Returns the response in arguments 3 to 5: status_code, response, failed. Raises an error for a
// status_code out of range and a response larger than outbox.max_payload_size.
StoredResponse response_argument(FunctionCallInfo fcinfo)
{
    StoredResponse response = {};
    response.status_code = DatumGetInt32(pg::required_argument(fcinfo, 3, "status_code"));
    if (response.status_code < limits::min_status_code ||
        response.status_code > limits::max_status_code)
        ereport(ERROR,
                (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                 errmsg("status_code must be between %d and %d, not %d", limits::min_status_code,
                        limits::max_status_code, response.status_code)));
    if (const auto given = pg::optional_argument(fcinfo, 4)) {
        response.body = pg::to_jsonb(*given, pg::declared_argument_type(fcinfo, 4));
        const int64 size = static_cast<int64>(toast_raw_datum_size(*response.body)) - VARHDRSZ;
        if (size > settings::max_payload_size)
            ereport(ERROR,
                    (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                     errmsg("response is too large: " INT64_FORMAT " bytes, at most %d are allowed",
                            size, settings::max_payload_size),
                     errhint("Store a reference to it, or raise outbox.max_payload_size.")));
    }
    response.failed = DatumGetBool(pg::optional_argument(fcinfo, 5).value_or(BoolGetDatum(false)));
    return response;
}

// Raises token_unknown or lease_lost, by the key's row, for a token that cannot finish or abandon
// its attempt.
[[noreturn]] void reject_token(const KeyName& name, int64 token)
{
    const auto stored = find_key(name);
    const char* hint = "Roll back what was done for this request.";
    if (!stored || stored->token < token)
        ereport(
            ERROR,
            (errcode(token_unknown),
             errmsg("token " INT64_FORMAT " is unknown for this key", token),
             errhint(
                 "Call idempotency_begin() again: the token was never issued, was abandoned, or "
                 "has expired.")));
    if (stored->token > token)
        ereport(ERROR, (errcode(lease_lost),
                        errmsg("token " INT64_FORMAT
                               " has lost its lease: another attempt has the key now",
                               token),
                        errhint("%s", hint)));
    if (stored->response)
        ereport(ERROR,
                (errcode(lease_lost),
                 errmsg("token " INT64_FORMAT " has lost its lease: the key is finished", token),
                 errhint("%s", hint)));
    ereport(ERROR, (errcode(lease_lost),
                    errmsg("token " INT64_FORMAT " has lost its lease: the key has expired", token),
                    errhint("%s", hint)));
    pg_unreachable();
}

// Takes the lock of the key before this transaction finishes or abandons an attempt that an earlier
// transaction has written. A takeover holds the same lock until its transaction ends, so that
// neither overwrites an uncommitted change of the other. If another session holds the lock, it
// raises the error of reject_token() for a row that rejects the token, and lock_not_available after
// lock_timeout.
void lock_to_end_attempt(const KeyName& name, int64 token)
{
    const uint64 hash = name.hash();
    if (lock_idempotency_key(hash, 0))
        return;
    const auto stored = find_key(name);
    if (!stored || stored->token != token || stored->response)
        reject_token(name, token); // the row rejects the token already: no need to wait
    if (!lock_idempotency_key(hash, INT_MAX))
        ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
                        errmsg("canceling statement due to lock timeout"),
                        errdetail("Another attempt is taking over the idempotency key.")));
}

// Returns the open attempt that this transaction began for the key; nullptr if there is none.
// Raises an error if it has another token.
const Attempt* own_attempt(const KeyName& name, int64 token)
{
    const Attempt* own = find_pending_attempt(name);
    if (own != nullptr && own->token != token)
        reject_token(name, token);
    return own;
}

// Stores the response of an attempt, in the row that this transaction deferred or in the one in the
// table. An update wakes waiting sessions at commit. Raises token_unknown or lease_lost.
void finish_attempt(const KeyName& name, int64 token, const StoredResponse& response)
{
    const Attempt* own = own_attempt(name, token);
    if (own == nullptr)
        lock_to_end_attempt(name, token);
    if (own != nullptr && !own->is_written)
        insert_key(*own, response);
    else if (!finish_key(name, token, response, own))
        reject_token(name, token);
    else
        ipc::wake_for_types_at_commit({}); // wakes idempotency_begin(wait => ...)
    if (own != nullptr)
        close_pending_attempt(own);
}

// Closes an attempt without a response and deletes its row, if it is written, which wakes waiting
// sessions at commit. Raises token_unknown or lease_lost.
void abandon_attempt(const KeyName& name, int64 token)
{
    const Attempt* own = own_attempt(name, token);
    if (own == nullptr)
        lock_to_end_attempt(name, token);
    if (own == nullptr || own->is_written) {
        if (!remove_key(name, token))
            reject_token(name, token);
        ipc::wake_for_types_at_commit({});
    }
    if (own != nullptr)
        close_pending_attempt(own);
}

} // namespace

} // namespace outbox

// Begins an attempt for a request given as JSON, or returns why it may not.
OUTBOX_SQL_FUNCTION(idempotency_begin)
{
    return outbox::pg::sql_entry([&] {
        return outbox::begin_call(fcinfo, [](FunctionCallInfo call) {
            using namespace outbox;
            const Datum request = pg::required_argument(call, 2, "request");
            return hash_of_request(
                DatumGetJsonbP(pg::to_jsonb(request, pg::declared_argument_type(call, 2))));
        });
    });
}

// Begins an attempt for a request given by its hash, or returns why it may not.
OUTBOX_SQL_FUNCTION(idempotency_begin_hashed)
{
    return outbox::pg::sql_entry([&] {
        return outbox::begin_call(fcinfo, [](FunctionCallInfo call) {
            return outbox::from_hex(outbox::pg::required_argument(call, 2, "request_hash"));
        });
    });
}

// Stores the response of an attempt. Without a key it stores nothing, and raises token_unknown if a
// token is given.
OUTBOX_SQL_FUNCTION(idempotency_finish)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        PreventCommandIfReadOnly("idempotency_finish()");
        const auto name = key_argument(fcinfo, 6);
        const auto token = pg::optional_argument(fcinfo, 2);
        const StoredResponse response = response_argument(fcinfo);
        if (name)
            finish_attempt(*name, DatumGetInt64(pg::required_argument(fcinfo, 2, "token")),
                           response);
        else if (token)
            ereport(ERROR, (errcode(token_unknown),
                            errmsg("token " INT64_FORMAT " was issued for a key, but key is NULL",
                                   DatumGetInt64(*token))));
        PG_RETURN_VOID();
    });
}

// Deletes an attempt, so that the key can be used again. Without a key it does nothing.
OUTBOX_SQL_FUNCTION(idempotency_abandon)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        PreventCommandIfReadOnly("idempotency_abandon()");
        if (const auto name = key_argument(fcinfo, 3))
            abandon_attempt(*name, DatumGetInt64(pg::required_argument(fcinfo, 2, "token")));
        PG_RETURN_VOID();
    });
}
