#include "pg/sandbox.hpp"

#include "pg/exceptions.hpp"

extern "C" {
#include "utils/timeout.h"
}

#include <cstring>

namespace outbox::pg {

namespace {

volatile sig_atomic_t time_limit_expired = false;

// Timeout handler. It requests a query cancel like pg_cancel_backend(); has_time_limit_expired()
// tells the two apart.
void on_time_limit()
{
    time_limit_expired = true;
    QueryCancelPending = true;
    InterruptPending = true;
    SetLatch(MyLatch);
}

// Returns the id of the timeout, registering it with the server at the first call.
TimeoutId time_limit_id()
{
    static bool registered = false;
    static TimeoutId id;
    if (!registered) {
        id = RegisterTimeout(USER_TIMEOUT, on_time_limit);
        registered = true;
    }
    return id;
}

// Switches to the role, security-restricted and read-only. The end of the subtransaction undoes it.
void enter_sandbox(Oid role)
{
    Oid user;
    int context;
    GetUserIdAndSecContext(&user, &context);
    SetUserIdAndSecContext(role,
                           context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
    XactReadOnly = true; // code in a subtransaction cannot reset it, and its end restores the value
    // switch_to_owner() turns enable_seqscan off for the extension's statements only. search_path
    // stays as it is there.
    (void)set_config_option("enable_seqscan", "on", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL,
                            true, 0, false);
}

} // namespace

namespace detail {

void in_sandbox(Oid role, void (*body)(const void*), const void* state)
{
    PG_TRY();
    {
        enter_sandbox(role);
        sql_entry([&] { body(state); });
    }
    PG_CATCH();
    {
        end_time_limit();
        PG_RE_THROW();
    }
    PG_END_TRY();
}

} // namespace detail

void start_time_limit(int milliseconds)
{
    time_limit_expired = false;
    enable_timeout_after(time_limit_id(), milliseconds);
}

void end_time_limit()
{
    disable_timeout(time_limit_id(), false);
    // A limit that expired after the last interrupt check must not cancel later code.
    if (time_limit_expired)
        QueryCancelPending = false;
}

bool has_time_limit_expired()
{
    return time_limit_expired;
}

// A cancel is recognized by the function that raised it, because user code can raise any SQLSTATE.
// A serialization failure ends the statement only where the caller's isolation level can have one:
// the caller retries the transaction, also if user code raised the error itself.
bool is_query_cancel(const ErrorData& error)
{
    return (error.sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE && IsolationUsesXactSnapshot()) ||
           (error.sqlerrcode == ERRCODE_QUERY_CANCELED && error.funcname != nullptr &&
            std::strcmp(error.funcname, "ProcessInterrupts") == 0 && !time_limit_expired);
}

} // namespace outbox::pg
