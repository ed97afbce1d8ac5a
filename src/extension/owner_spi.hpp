// SQL from C++ through SPI, prepared once per backend and run in the role that owns the log.
#pragma once

#include "pg/postgres.hpp"

#include <optional>
#include <type_traits>

namespace outbox {

// A prepared statement with a saved plan. `@schema@` in its text is replaced by the extension's
// schema. The constructor is consteval, so no other text can get into it at run time.
class Statement {
public:
    static constexpr int max_parameters = 20;

    consteval explicit Statement(const char* text) : text_(text), count_(0) {}

    template <int count>
    consteval Statement(const char* text, const Oid (&types)[count]) : text_(text), count_(count)
    {
        static_assert(count <= max_parameters);
        for (int i = 0; i < count; ++i)
            types_[i] = types[i];
    }

    // Executes the statement; call inside as_owner(). `nulls` as for SPI: 'n' where NULL, or
    // nullptr for none. Returns SPI_processed; result rows are in SPI_tuptable.
    uint64 execute(const Datum* values, const char* nulls = nullptr);

    // Executes the statement like execute(), with GetLatestSnapshot() also in REPEATABLE READ and
    // SERIALIZABLE transactions.
    uint64 execute_with_latest_snapshot(const Datum* values, const char* nulls = nullptr);

private:
    // Prepares and keeps the plan, unless there is one for the extension's current schema.
    void prepare();

    const char* text_;
    int count_;
    Oid types_[max_parameters] = {};
    SPIPlanPtr plan_ = nullptr;
    char schema_[NAMEDATALEN] = {}; // the extension's schema when plan_ was made
};

// Row `number` of the last statement's result in SPI_tuptable. Valid while SPI is connected, also
// after other statements. Columns count from 1.
class ResultRow {
public:
    explicit ResultRow(uint64 number)
        : tuple_(SPI_tuptable->vals[number]), descriptor_(SPI_tuptable->tupdesc)
    {}

    bool is_null(int column) const
    {
        bool null;
        (void)SPI_getbinval(tuple_, descriptor_, column, &null);
        return null;
    }

    // Returns Datum 0 for NULL.
    Datum get(int column) const
    {
        bool null;
        return SPI_getbinval(tuple_, descriptor_, column, &null);
    }

    std::optional<Datum> find(int column) const
    {
        bool null;
        const Datum value = SPI_getbinval(tuple_, descriptor_, column, &null);
        return null ? std::nullopt : std::optional<Datum>(value);
    }

private:
    HeapTuple tuple_;
    TupleDesc descriptor_;
};

// search_path inside as_owner(). No role but a superuser can create objects in pg_catalog, and
// functions and operators are never looked up in pg_temp.
inline constexpr const char* owner_search_path = "pg_catalog, pg_temp";

namespace detail {

struct SavedRole {
    Oid user;
    int security_context;
    int guc_level;
};

// Connects to SPI, in the role that owns the log, with owner_search_path and without
// enable_seqscan. Raises undefined_object if the extension is not installed.
SavedRole switch_to_owner();
// Closes SPI and restores role and settings.
void switch_back(const SavedRole& before);

} // namespace detail

// Runs `body` connected to SPI, in the role that owns the log, with owner_search_path. It needs no
// destructor: after an error the abort of the (sub)transaction restores role, settings and SPI.
template <typename Body>
void as_owner(Body&& body)
{
    static_assert(std::is_trivially_destructible_v<std::remove_reference_t<Body>>);
    const detail::SavedRole before = detail::switch_to_owner();
    body();
    detail::switch_back(before);
}

} // namespace outbox
