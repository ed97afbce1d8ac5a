// The SQL functions for idempotency keys.
#include "core/limits.hpp"
#include "extension/fencing_token.hpp"
#include "extension/guc.hpp"
#include "extension/locks.hpp"
#include "extension/sqlstates.hpp"
#include "idempotency/pending_attempts.hpp"
#include "ipc/wakeup.hpp"
#include "log/event.hpp"
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

// While an attempt goes on in another transaction, so often it is looked at.
constexpr int64 longest_nap = 50 * milliseconds;

enum class Decision { execute, replay, conflict, in_progress };

struct Verdict {
    Decision decision;
    int64 token = 0; // of an execution; 0: the call has no key
    std::optional<Answer> answer;
};

// ---- arguments

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

Datum name_argument(FunctionCallInfo fcinfo, int number, const char* name)
{
    const Datum value = pg::required_argument(fcinfo, number, name);
    check_length(pg::to_view(value), name);
    return value;
}

int64 tenant_argument(FunctionCallInfo fcinfo, int number)
{
    EventArguments arguments;
    if (const auto tenant = pg::argument(fcinfo, number))
        arguments.tenant_id = DatumGetInt64(*tenant);
    return effective_tenant(arguments);
}

int64 interval_argument(FunctionCallInfo fcinfo, int number, const char* name, int64 otherwise,
                        int64 least, int64 most, const char* bounds)
{
    const auto value = pg::argument(fcinfo, number);
    if (!value)
        return otherwise;
    const int64 length = pg::to_microseconds(*DatumGetIntervalP(*value));
    if (length < least || length > most)
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("%s must be between %s", name, bounds)));
    return length;
}

// Nothing: the call has no key, and may do without.
std::optional<KeyName> key_argument(FunctionCallInfo fcinfo, int tenant_number)
{
    KeyName name = {};
    name.scope = name_argument(fcinfo, 0, "scope");
    name.tenant_id = tenant_argument(fcinfo, tenant_number);
    const auto key = pg::argument(fcinfo, 1);
    if (!key) {
        if (is_key_required(name.scope))
            ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("key must not be NULL"),
                            errhint("An HTTP layer answers 400 to a request without a key.")));
        return std::nullopt;
    }
    check_length(pg::to_view(*key), "key");
    name.key = *key;
    return name;
}

// ---- begin

struct BeginRequest {
    KeyName name;
    RequestHash request;
    int64 ttl;
    int64 lease;
    int64 wait;
};

// What is to be said of a key that is not free.
std::optional<Verdict> judge(const BeginRequest& request, const std::optional<StoredKey>& stored,
                             TimestampTz now)
{
    if (!stored || stored->is_free(now))
        return std::nullopt;
    if (!(stored->request == request.request))
        return Verdict{Decision::conflict, 0, std::nullopt};
    if (stored->answer)
        return Verdict{Decision::replay, 0, stored->answer};
    return Verdict{Decision::in_progress, 0, std::nullopt};
}

constexpr Verdict in_progress = {Decision::in_progress, 0, std::nullopt};

Verdict execute(const BeginRequest& request, bool overwrites)
{
    const int64 token = draw_tokens(1);
    Attempt attempt = {request.name, request.request, token, request.ttl, request.lease};
    attempt.is_written = overwrites || !may_write_late();
    // An attempt that is taken over learns of it by the row.
    if (overwrites && !overwrite_key(attempt))
        return in_progress;
    if (!overwrites && attempt.is_written)
        insert_key(attempt, std::nullopt);
    add_attempt(attempt);
    return {Decision::execute, token, std::nullopt};
}

int in_milliseconds(int64 time)
{
    return static_cast<int>((time + milliseconds - 1) / milliseconds);
}

void wait_for_row(int64 patience)
{
    pg::prepare_to_wait();
    pg::wait_for_wake(in_milliseconds(Min(patience, longest_nap)));
    pg::stop_waiting();
}

// One look at a key, with its lock or without. Nothing: another transaction has the lock, and no
// row says more.
std::optional<Verdict> look(const BeginRequest& request, uint64 hash, bool locked)
{
    // Behind the lock the row stays what it is, unless it has expired and is removed.
    const auto stored = find_key(request.name);
    auto verdict = judge(request, stored, GetCurrentTimestamp());
    if (!verdict && locked)
        verdict = execute(request, stored.has_value());
    if (locked && verdict->decision != Decision::execute)
        pg::unlock_attempt(hash);
    return verdict;
}

bool is_final(const std::optional<Verdict>& verdict)
{
    return verdict && verdict->decision != Decision::in_progress;
}

// Somebody else's transaction has the lock while it runs; a committed attempt has a row.
Verdict wait_for_verdict(const BeginRequest& request, uint64 hash, std::optional<Verdict> verdict)
{
    const MemoryContext caller = CurrentMemoryContext;
    // Each look takes a copy of the row.
    const MemoryContext one_look =
        AllocSetContextCreate(caller, "outbox idempotency key", ALLOCSET_SMALL_SIZES);
    const TimestampTz deadline = GetCurrentTimestamp() + request.wait;
    while (!is_final(verdict)) {
        const int64 patience = deadline - GetCurrentTimestamp();
        if (patience <= 0)
            return in_progress;
        if (verdict)
            wait_for_row(patience);
        MemoryContextReset(one_look);
        MemoryContextSwitchTo(one_look);
        // Who has waited for the lock keeps it: many who wait would pass it around for ever.
        const bool locked = pg::lock_attempt(hash, verdict ? 0 : in_milliseconds(patience));
        CHECK_FOR_INTERRUPTS();
        verdict = look(request, hash, locked);
        MemoryContextSwitchTo(caller);
    }
    if (verdict->answer && verdict->answer->response)
        verdict->answer->response = datumCopy(*verdict->answer->response, false, -1);
    MemoryContextDelete(one_look);
    return *verdict;
}

Verdict begin(const BeginRequest& request)
{
    if (const Attempt* own = find_attempt(request.name))
        return {own->request == request.request ? Decision::in_progress : Decision::conflict, 0,
                std::nullopt};
    const uint64 hash = request.name.hash();
    const auto verdict = look(request, hash, pg::lock_attempt(hash, 0));
    if (is_final(verdict) || request.wait == 0)
        return verdict.value_or(in_progress);
    return wait_for_verdict(request, hash, verdict);
}

const char* name_of(Decision decision)
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

// As long as nobody has changed the type.
TupleDesc shape_of_verdict(FunctionCallInfo fcinfo)
{
    constexpr Oid types[] = {TEXTOID, INT8OID, INT4OID, JSONBOID, INT4OID};
    TupleDesc descriptor;
    bool fits = get_call_result_type(fcinfo, nullptr, &descriptor) == TYPEFUNC_COMPOSITE &&
                descriptor->natts == static_cast<int>(std::size(types));
    for (int i = 0; fits && i < descriptor->natts; ++i)
        fits = TupleDescAttr(descriptor, i)->atttypid == types[i];
    if (!fits)
        ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
                        errmsg("type idempotency_verdict is not as the extension made it")));
    return BlessTupleDesc(descriptor);
}

Datum to_row(FunctionCallInfo fcinfo, const Verdict& verdict)
{
    constexpr int conflict_status = 409, too_early_status = 425;
    const bool executes = verdict.decision == Decision::execute;
    const auto& answer = verdict.answer;
    Datum values[] = {CStringGetTextDatum(name_of(verdict.decision)), Int64GetDatum(verdict.token),
                      Int32GetDatum(answer ? answer->status_code : 0),
                      answer ? answer->response.value_or(Datum{0}) : Datum{0},
                      Int32GetDatum(answer                                   ? answer->status_code
                                    : verdict.decision == Decision::conflict ? conflict_status
                                                                             : too_early_status)};
    bool nulls[] = {false, verdict.token == 0, !answer, !answer || !answer->response, executes};
    return HeapTupleGetDatum(heap_form_tuple(shape_of_verdict(fcinfo), values, nulls));
}

// The arguments behind scope, key and request.
enum : int { arg_tenant_id = 3, arg_ttl, arg_lease, arg_wait };

Datum begin(FunctionCallInfo fcinfo, RequestHash (*read_request)(FunctionCallInfo))
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
    const Verdict verdict = name ? begin(BeginRequest{*name, hash, ttl, lease, wait})
                                 : Verdict{Decision::execute, 0, std::nullopt};
    return to_row(fcinfo, verdict);
}

// ---- finish

Answer answer_argument(FunctionCallInfo fcinfo)
{
    Answer answer = {};
    answer.status_code = DatumGetInt32(pg::required_argument(fcinfo, 3, "status_code"));
    if (answer.status_code < limits::min_status_code ||
        answer.status_code > limits::max_status_code)
        ereport(ERROR,
                (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                 errmsg("status_code must be between %d and %d, not %d", limits::min_status_code,
                        limits::max_status_code, answer.status_code)));
    if (const auto given = pg::argument(fcinfo, 4)) {
        answer.response = pg::to_jsonb(*given, pg::argument_type(fcinfo, 4));
        const int64 size = static_cast<int64>(toast_raw_datum_size(*answer.response)) - VARHDRSZ;
        if (size > settings::max_payload_size)
            ereport(ERROR,
                    (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                     errmsg("response is too large: " INT64_FORMAT " bytes, at most %d are allowed",
                            size, settings::max_payload_size),
                     errhint("Store a reference to it, or raise outbox.max_payload_size.")));
    }
    answer.failed = DatumGetBool(pg::argument(fcinfo, 5).value_or(BoolGetDatum(false)));
    return answer;
}

// Why this token can do nothing.
[[noreturn]] void refuse_token(const KeyName& name, int64 token)
{
    const auto stored = find_key(name);
    const char* hint = "Roll back what was done for this request.";
    if (!stored || stored->token < token)
        ereport(ERROR, (errcode(pg::token_unknown),
                        errmsg("token " INT64_FORMAT " is unknown for this key", token),
                        errhint("It was never given out, was abandoned, or has expired.")));
    if (stored->token > token)
        ereport(ERROR, (errcode(pg::lease_lost),
                        errmsg("token " INT64_FORMAT
                               " has lost its lease: another attempt has the key now",
                               token),
                        errhint("%s", hint)));
    if (stored->answer)
        ereport(ERROR,
                (errcode(pg::lease_lost),
                 errmsg("token " INT64_FORMAT " has lost its lease: the key is finished", token),
                 errhint("%s", hint)));
    ereport(ERROR, (errcode(pg::lease_lost),
                    errmsg("token " INT64_FORMAT " has lost its lease: the key has expired", token),
                    errhint("%s", hint)));
    pg_unreachable();
}

// Before a row is settled that another transaction has written. Whoever takes the key over has the
// lock until its transaction ends, and so has this one: neither overwrites what the other has done.
void lock_to_settle(const KeyName& name, int64 token)
{
    const uint64 hash = name.hash();
    if (pg::lock_attempt(hash, 0))
        return;
    const auto stored = find_key(name);
    if (!stored || stored->token != token || stored->answer)
        refuse_token(name, token); // there is nothing to wait for
    if (!pg::lock_attempt(hash, INT_MAX))
        ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
                        errmsg("canceling statement due to lock timeout"),
                        errdetail("Another attempt is taking over the idempotency key.")));
}

// The attempt that this transaction has begun, if it has; with its token.
const Attempt* own_attempt(const KeyName& name, int64 token)
{
    const Attempt* own = find_attempt(name);
    if (own != nullptr && own->token != token)
        refuse_token(name, token);
    return own;
}

void finish(const KeyName& name, int64 token, const Answer& answer)
{
    const Attempt* own = own_attempt(name, token);
    if (own == nullptr)
        lock_to_settle(name, token);
    if (own != nullptr && !own->is_written)
        insert_key(*own, answer);
    else if (!finish_key(name, token, answer, own))
        refuse_token(name, token);
    else
        pg::wake_for_types_at_commit({}); // for those who wait for it
    if (own != nullptr)
        settle_attempt(own);
}

void abandon(const KeyName& name, int64 token)
{
    const Attempt* own = own_attempt(name, token);
    if (own == nullptr)
        lock_to_settle(name, token);
    if (own == nullptr || own->is_written) {
        if (!remove_key(name, token))
            refuse_token(name, token);
        pg::wake_for_types_at_commit({});
    }
    if (own != nullptr)
        settle_attempt(own);
}

} // namespace

} // namespace outbox

OUTBOX_SQL_FUNCTION(idempotency_begin)
{
    return outbox::pg::entry([&] {
        return outbox::begin(fcinfo, [](FunctionCallInfo call) {
            using namespace outbox;
            const Datum request = pg::required_argument(call, 2, "request");
            return hash_of_request(
                DatumGetJsonbP(pg::to_jsonb(request, pg::argument_type(call, 2))));
        });
    });
}

OUTBOX_SQL_FUNCTION(idempotency_begin_hashed)
{
    return outbox::pg::entry([&] {
        return outbox::begin(fcinfo, [](FunctionCallInfo call) {
            return outbox::from_hex(outbox::pg::required_argument(call, 2, "request_hash"));
        });
    });
}

OUTBOX_SQL_FUNCTION(idempotency_finish)
{
    return outbox::pg::entry([&] {
        using namespace outbox;
        PreventCommandIfReadOnly("idempotency_finish()");
        const auto name = key_argument(fcinfo, 6);
        const auto token = pg::argument(fcinfo, 2);
        const Answer answer = answer_argument(fcinfo);
        if (name)
            finish(*name, DatumGetInt64(pg::required_argument(fcinfo, 2, "token")), answer);
        else if (token)
            ereport(ERROR, (errcode(pg::token_unknown),
                            errmsg("token " INT64_FORMAT " was given out with a key",
                                   DatumGetInt64(*token))));
        PG_RETURN_VOID();
    });
}

OUTBOX_SQL_FUNCTION(idempotency_abandon)
{
    return outbox::pg::entry([&] {
        using namespace outbox;
        PreventCommandIfReadOnly("idempotency_abandon()");
        if (const auto name = key_argument(fcinfo, 3))
            abandon(*name, DatumGetInt64(pg::required_argument(fcinfo, 2, "token")));
        PG_RETURN_VOID();
    });
}
