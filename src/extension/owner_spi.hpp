// SQL from C++, planned once per backend, run in the role that owns the log.
#pragma once

#include "pg/postgres.hpp"

#include <optional>
#include <type_traits>

namespace outbox {

// A statement with a plan that is kept. `@schema@` in its text stands for the extension's schema.
// Nothing else can be put into it: the text is the compiler's.
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

    // Inside as_owner() only. `nulls` as for SPI: 'n' where NULL, or nullptr for none.
    // Returns how many rows it processed; what it returned is in SPI_tuptable.
    uint64 execute(const Datum* values, const char* nulls = nullptr);

    // The same with a snapshot taken now, also where the transaction has one for good.
    uint64 execute_with_latest_snapshot(const Datum* values, const char* nulls = nullptr);

private:
    void prepare();

    const char* text_;
    int count_;
    Oid types_[max_parameters] = {};
    SPIPlanPtr plan_ = nullptr;
    char schema_[NAMEDATALEN] = {}; // that the plan was made for
};

// A row of what the last statement returned. It stays good while SPI is connected, also when other
// statements follow. Columns count from 1.
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

// Where the owner's statements look for what they name.
inline constexpr const char* owner_search_path = "pg_catalog, pg_temp";

namespace detail {

struct SavedRole {
    Oid user;
    int security_context;
    int guc_level;
};

SavedRole switch_to_owner();
void switch_back(const SavedRole& before);

} // namespace detail

// Runs `body` connected to SPI, as the owner of the log, with a search_path that nobody can put
// anything into. Needs no destructor: an error on the way ends the (sub)transaction, and that
// restores role, settings and SPI.
template <typename Body>
void as_owner(Body&& body)
{
    static_assert(std::is_trivially_destructible_v<std::remove_reference_t<Body>>);
    const detail::SavedRole before = detail::switch_to_owner();
    body();
    detail::switch_back(before);
}

} // namespace outbox
