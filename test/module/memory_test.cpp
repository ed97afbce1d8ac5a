// SQL functions that say what a session has of memory, and some that lose it: whoever looks for
// leaks has to find these.
#include "pg/exceptions.hpp"

extern "C" {
#include "utils/inval.h"
}

#include <malloc.h>

#include <cstdlib>

namespace {

bool lose(int32 bytes)
{
    static void* volatile lost;
    lost = malloc(bytes);
    return lost != nullptr;
}

// Of the transaction that is going on.
int32 to_lose = 0;
bool to_lose_in_context = false;

void on_xact_event(XactEvent event, void*)
{
    if (event == XACT_EVENT_PRE_COMMIT || to_lose == 0)
        return;
    if (event == XACT_EVENT_COMMIT) {
        if (to_lose_in_context)
            MemoryContextAlloc(TopMemoryContext, to_lose);
        else
            lose(to_lose);
    }
    to_lose = 0;
}

} // namespace

// Bytes that malloc() has given out. The server's contexts are made of them, too.
OUTBOX_SQL_FUNCTION(memory_given_out)
{
    (void)fcinfo;
    const auto given = mallinfo2();
    PG_RETURN_INT64(static_cast<int64>(given.uordblks + given.hblkhd));
}

// Empties the server's caches of its catalogs: they remember what is not there, too.
OUTBOX_SQL_FUNCTION(memory_forget)
{
    (void)fcinfo;
    InvalidateSystemCaches();
    PG_RETURN_VOID();
}

// Loses so many bytes of a context that lasts as long as the session, and fails, if it is to.
OUTBOX_SQL_FUNCTION(memory_lose_in_context)
{
    MemoryContextAlloc(TopMemoryContext, PG_GETARG_INT32(0));
    if (PG_GETARG_BOOL(1))
        ereport(ERROR, errcode(ERRCODE_DATA_EXCEPTION), errmsg("lost"));
    PG_RETURN_VOID();
}

// Loses so many bytes that no context knows of.
OUTBOX_SQL_FUNCTION(memory_lose)
{
    PG_RETURN_BOOL(lose(PG_GETARG_INT32(0)));
}

// Reads what is behind the end: AddressSanitizer has to say so. The compiler is not to know.
OUTBOX_SQL_FUNCTION(memory_overrun)
{
    const int32 size = PG_GETARG_INT32(0);
    char* volatile block = static_cast<char*>(calloc(size, 1));
    const char behind = block[size];
    free(block);
    PG_RETURN_INT32(behind);
}

// Loses so many bytes, of a context or not, when the transaction commits, and none if it does not.
OUTBOX_SQL_FUNCTION(memory_lose_at_commit)
{
    static bool is_watching = false;
    if (!is_watching)
        RegisterXactCallback(on_xact_event, nullptr);
    is_watching = true;
    to_lose = PG_GETARG_INT32(0);
    to_lose_in_context = PG_GETARG_BOOL(1);
    PG_RETURN_VOID();
}
