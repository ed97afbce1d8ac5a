// Reads rows of a table through an index, without planner and executor. No privilege check.
#pragma once

#include "pg/postgres.hpp"

#include <optional>
#include <span>

namespace outbox::pg {

// Calls `body` with a registered snapshot taken now (GetLatestSnapshot), which includes the changes
// of this transaction, and returns its result. Use it where a REPEATABLE READ caller must not read
// an old state.
template <typename Body>
auto with_latest_snapshot(Body&& body)
{
    CommandCounterIncrement();
    const Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
    const auto result = body(snapshot);
    UnregisterSnapshot(snapshot);
    return result;
}

// A column as the install script defines it.
struct ColumnSpec {
    const char* name;
    Oid type;
    bool may_be_null = false; // has_columns() then requires that it is not NOT NULL
};

// Returns the number of a column. `expected` is its position in the install script, from 0, tried
// first. Raises undefined_column if the table has no such column of that type.
AttrNumber find_column(Relation table, const ColumnSpec& column, int expected);

// Opens, with `lock`, a valid B-tree index with exactly these key columns, in this order,
// ascending. It has no predicate, or only that `not_null_column` IS NOT NULL. Raises an error with
// the CREATE INDEX command if there is none.
Relation open_index(Relation table, std::span<const AttrNumber> columns, LOCKMODE lock,
                    AttrNumber not_null_column = 0);

// Returns the column of an index predicate that is a single IS NOT NULL; 0 for any other predicate,
// and for none.
AttrNumber not_null_column_of(List* predicate);

// A value that an index column must equal. The type is int4, int8 or text.
struct IndexKey {
    Oid type;
    Datum value;
};

namespace detail {

// Cached result of open_index(), valid for one table and one catalog_generation().
struct ResolvedIndex {
    uint64 generation = PG_UINT64_MAX;
    Oid table = InvalidOid;
    Oid index = InvalidOid;
};

struct ColumnsToRead {
    std::span<const ColumnSpec> columns; // the index keys come first
    int key_count;
    AttrNumber* numbers; // of the columns; valid when the index is resolved
};

enum class Which { first, last, first_for_update };

// Reads the first or last row in index order whose leading key columns equal `keys`. Copies its
// columns to `values`, which point into a palloc'd tuple. Returns false if there is none.
bool find_row(ResolvedIndex& resolved, const ColumnsToRead& to_read, Oid table, Snapshot snapshot,
              std::span<const IndexKey> keys, Which which, Datum* values, bool* nulls);

} // namespace detail

// Columns of a row. Values passed by reference are in the memory context of the read.
template <int count>
struct StoredRow {
    Datum values[count];
    bool nulls[count];

    // `column` is the position in the IndexedTable's columns, from 0. get() raises an error for
    // NULL.
    Datum get(int column) const
    {
        if (nulls[column])
            elog(ERROR, "column %d of a row is null", column);
        return values[column];
    }
    // Returns std::nullopt for NULL.
    std::optional<Datum> find(int column) const
    {
        return nulls[column] ? std::nullopt : std::optional(values[column]);
    }
};

// Reads certain columns of an internal table through one of its indexes. Column numbers and index
// are looked up once and again after each change of catalog_generation(). Every read locks the
// table AccessShare, lock_first() RowExclusive, until the end of the transaction.
template <int count>
class IndexedTable {
public:
    using FoundRow = std::optional<StoredRow<count>>;

    // The index has the first `key_count` columns as its keys.
    constexpr IndexedTable(const ColumnSpec (&columns)[count], int key_count)
        : columns_(columns), key_count_(key_count)
    {}

    // Returns the first row, in index order, whose leading key columns equal `keys`.
    FoundRow find_first(Oid table, Snapshot snapshot, std::span<const IndexKey> keys)
    {
        return find(table, snapshot, keys, detail::Which::first);
    }

    // Returns the last row, in index order, whose leading key columns equal `keys`.
    FoundRow find_last(Oid table, Snapshot snapshot, std::span<const IndexKey> keys)
    {
        return find(table, snapshot, keys, detail::Which::last);
    }

    // Returns the first row, in index order, whose leading key columns equal `keys`, locked like
    // SELECT FOR UPDATE: waits for a concurrent update and returns the new version; std::nullopt if
    // the row was deleted.
    FoundRow lock_first(Oid table, Snapshot snapshot, std::span<const IndexKey> keys)
    {
        return find(table, snapshot, keys, detail::Which::first_for_update);
    }

private:
    FoundRow find(Oid table, Snapshot snapshot, std::span<const IndexKey> keys, detail::Which which)
    {
        FoundRow row(std::in_place);
        if (!detail::find_row(resolved_, {columns_, key_count_, numbers_}, table, snapshot, keys,
                              which, row->values, row->nulls))
            row.reset();
        return row;
    }

    const ColumnSpec (&columns_)[count];
    int key_count_;
    detail::ResolvedIndex resolved_;
    AttrNumber numbers_[count] = {};
};

} // namespace outbox::pg
