#include "pg/sandbox.hpp"

#include "pg/exceptions.hpp"

extern "C" {
#include "utils/timeout.h"
}

#include <cstring>

namespace outbox::pg {

namespace {

volatile sig_atomic_t time_is_up = false;

// As a cancel that somebody sends; is_time_up() tells them apart.
void cancel()
{
    time_is_up = true;
    QueryCancelPending = true;
    InterruptPending = true;
    SetLatch(MyLatch);
}

TimeoutId time_limit()
{
    static bool registered = false;
    static TimeoutId id;
    if (!registered) {
        id = RegisterTimeout(USER_TIMEOUT, cancel);
        registered = true;
    }
    return id;
}

void go_in(Oid role)
{
    Oid user;
    int context;
    GetUserIdAndSecContext(&user, &context);
    SetUserIdAndSecContext(role,
                           context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
    XactReadOnly = true; // cannot be undone inside of a subtransaction, and ends with it
    // Ours alone, see become_owner(); the search_path stays.
    (void)set_config_option("enable_seqscan", "on", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL,
                            true, 0, false);
}

} // namespace

namespace detail {

void in_sandbox(Oid role, void (*body)(const void*), const void* state)
{
    PG_TRY();
    {
        go_in(role);
        entry([&] { body(state); });
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
    time_is_up = false;
    enable_timeout_after(time_limit(), milliseconds);
}

void end_time_limit()
{
    disable_timeout(time_limit(), false);
    // It came too late to cancel anything.
    if (time_is_up)
        QueryCancelPending = false;
}

bool is_time_up()
{
    return time_is_up;
}

// By where it was raised: anybody can raise any SQLSTATE. A transaction that can fail to be
// serialized is some caller's, who tries again: an upcaster that says so of itself tries its luck.
bool is_cancel(const ErrorData& error)
{
    return (error.sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE && IsolationUsesXactSnapshot()) ||
           (error.sqlerrcode == ERRCODE_QUERY_CANCELED && error.funcname != nullptr &&
            std::strcmp(error.funcname, "ProcessInterrupts") == 0 && !time_is_up);
}

} // namespace outbox::pg
