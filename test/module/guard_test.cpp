// SQL functions that drive src/pg/exceptions.hpp through every way across the boundary. A library
// of its own: none of this is in the product.
#include "pg/exceptions.hpp"

#include "core/error.hpp"

#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
extern "C" {
PG_MODULE_MAGIC;
}
#pragma GCC visibility pop

namespace pg = outbox::pg;

namespace {

int alive = 0;

struct Counted {
    Counted() { ++alive; }
    ~Counted() { --alive; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
};

void run_sql(const char* sql)
{
    if (SPI_connect() != SPI_OK_CONNECT)
        elog(ERROR, "SPI_connect failed");
    SPI_execute(sql, false, 0);
    SPI_finish();
}

// Plain C++ with destructors on every level, calling the server in the innermost.
void deep(int levels, const char* sql)
{
    const Counted counted;
    const std::vector<std::string> heap(3, "a string too long for the small string optimisation");
    if (levels > 0)
        deep(levels - 1, sql);
    else
        pg::guarded_call([&] { run_sql(sql); });
}

} // namespace

OUTBOX_SQL_FUNCTION(guard_throw)
{
    const char* kind = text_to_cstring(PG_GETARG_TEXT_PP(0));
    return pg::sql_entry([&]() -> Datum {
        const std::string_view what = kind;
        if (what == "int")
            throw 42;
        if (what == "bad_alloc")
            throw std::bad_alloc();
        if (what == "std")
            throw std::runtime_error("a standard exception");
        if (what == "long")
            throw std::runtime_error("x" + [] {
                std::string text;
                for (int i = 0; i < 1000; ++i)
                    text += "€";
                return text;
            }());
        throw outbox::Error("OB999", "our own error", "its detail", "its hint");
    });
}

// C++ to server to C++: the server's error passes through frames with destructors.
OUTBOX_SQL_FUNCTION(guard_run)
{
    const char* sql = text_to_cstring(PG_GETARG_TEXT_PP(0));
    return pg::sql_entry([&]() -> Datum {
        deep(5, sql);
        PG_RETURN_INT32(alive);
    });
}

// How many objects were not destroyed so far.
OUTBOX_SQL_FUNCTION(guard_alive)
{
    (void)fcinfo;
    PG_RETURN_INT32(alive);
}

// A C++ exception thrown inside `guarded_call` arrives as itself, and the server's error stack is
// intact.
OUTBOX_SQL_FUNCTION(guard_throw_in_call)
{
    (void)fcinfo;
    return pg::sql_entry([&]() -> Datum {
        const auto* stack = PG_exception_stack;
        const auto* context = error_context_stack;
        try {
            pg::guarded_call([] { throw 42; });
        } catch (int value) {
            PG_RETURN_BOOL(value == 42 && stack == PG_exception_stack &&
                           context == error_context_stack);
        }
        PG_RETURN_BOOL(false);
    });
}

// Catches the server's error, with the subtransaction that this needs, and goes on.
OUTBOX_SQL_FUNCTION(guard_catch)
{
    const char* sql = text_to_cstring(PG_GETARG_TEXT_PP(0));
    return pg::sql_entry([&]() -> Datum {
        const MemoryContext context = CurrentMemoryContext;
        const ResourceOwner owner = CurrentResourceOwner;
        BeginInternalSubTransaction(nullptr);
        MemoryContextSwitchTo(context);
        char sqlstate[6] = "00000";
        try {
            pg::guarded_call([&] { run_sql(sql); });
            ReleaseCurrentSubTransaction();
        } catch (const pg::ServerError& error) {
            strlcpy(sqlstate, unpack_sql_state(error.sqlstate()), sizeof(sqlstate));
        }
        if (strcmp(sqlstate, "00000") != 0)
            RollbackAndReleaseCurrentSubTransaction();
        MemoryContextSwitchTo(context);
        CurrentResourceOwner = owner;
        PG_RETURN_TEXT_P(cstring_to_text(sqlstate));
    });
}
