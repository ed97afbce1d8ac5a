// SQL functions that report the memory of a session, and some that leak memory, which the tests for
// leaks must detect.
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

// Bytes that the current transaction loses when it commits.
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

// Bytes allocated by malloc(), which includes the memory contexts of the server.
OUTBOX_SQL_FUNCTION(memory_given_out)
{
    (void)fcinfo;
    const auto given = mallinfo2();
    PG_RETURN_INT64(static_cast<int64>(given.uordblks + given.hblkhd));
}

// Empties the catalog caches, which have entries for missing objects, too.
OUTBOX_SQL_FUNCTION(memory_forget)
{
    (void)fcinfo;
    InvalidateSystemCaches();
    PG_RETURN_VOID();
}

// Loses bytes of TopMemoryContext; raises an error afterwards if the second argument is true.
OUTBOX_SQL_FUNCTION(memory_lose_in_context)
{
    MemoryContextAlloc(TopMemoryContext, PG_GETARG_INT32(0));
    if (PG_GETARG_BOOL(1))
        ereport(ERROR, errcode(ERRCODE_DATA_EXCEPTION), errmsg("lost"));
    PG_RETURN_VOID();
}

// Loses bytes of malloc() that belong to no memory context.
OUTBOX_SQL_FUNCTION(memory_lose)
{
    PG_RETURN_BOOL(lose(PG_GETARG_INT32(0)));
}

// Reads beyond the end of a block, which AddressSanitizer must report. `volatile` hides the error
// from the compiler.
OUTBOX_SQL_FUNCTION(memory_overrun)
{
    const int32 size = PG_GETARG_INT32(0);
    char* volatile block = static_cast<char*>(calloc(size, 1));
    const char behind = block[size];
    free(block);
    PG_RETURN_INT32(behind);
}

// Loses bytes at the commit of the transaction, of TopMemoryContext or of malloc(); none if it
// rolls back.
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
