// SQL functions that test src/pg/exceptions.hpp: errors and exceptions across every boundary
// between C++ and the server. A library of its own, not part of the product.
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

// C++ frames with destructors, the innermost of which calls the server.
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

// C++, server, C++: an error of the server passes through frames with destructors.
OUTBOX_SQL_FUNCTION(guard_run)
{
    const char* sql = text_to_cstring(PG_GETARG_TEXT_PP(0));
    return pg::sql_entry([&]() -> Datum {
        deep(5, sql);
        PG_RETURN_INT32(alive);
    });
}

// Number of objects that are not destroyed.
OUTBOX_SQL_FUNCTION(guard_alive)
{
    (void)fcinfo;
    PG_RETURN_INT32(alive);
}

// A C++ exception thrown inside `guarded_call` keeps its type and value, and the server's error
// stack is intact.
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

// Catches an error of the server, with the subtransaction that this requires, and returns its
// SQLSTATE.
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
