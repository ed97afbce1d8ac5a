// Tables through their indexes, without planner and executor.
#pragma once

#include "pg/postgres.hpp"

#include <optional>
#include <span>

namespace outbox::pg {

// Calls `body` with a snapshot that shows what is committed now, and what this transaction
// has done so far.
template <typename Body>
auto with_latest_snapshot(Body&& body)
{
    CommandCounterIncrement();
    const Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
    const auto result = body(snapshot);
    UnregisterSnapshot(snapshot);
    return result;
}

struct ColumnSpec {
    const char* name;
    Oid type;
    bool may_be_null = false; // then it has to be without NOT NULL
};

// Where the table has the column, which the install script has made its `expected`th from 0. Raises
// an error if there is none of that type.
AttrNumber find_column(Relation table, const ColumnSpec& column, int expected);

// Opens the index whose keys are these columns, in this order and ascending, and which has all
// rows, or at least those with a value in column `not_null_column`. Raises an error that says how
// to make one.
Relation open_index(Relation table, std::span<const AttrNumber> columns, LOCKMODE lock,
                    AttrNumber not_null_column = 0);

// For a partial index with no other condition than that a column is not null: that column. 0 for
// any other condition, and for none.
AttrNumber not_null_column_of(List* predicate);

// What a column of an index has to equal: int4, int8 or text.
struct IndexKey {
    Oid type;
    Datum value;
};

namespace detail {

// Which index it is, and since when that is known.
struct ResolvedIndex {
    uint64 generation = PG_UINT64_MAX;
    Oid table = InvalidOid;
    Oid index = InvalidOid;
};

struct ColumnsToRead {
    std::span<const ColumnSpec> columns; // the keys of the index come first
    int key_count;
    AttrNumber* numbers; // as far as `resolved` is known
};

enum class Which { first, last, first_for_update };

bool find_row(ResolvedIndex& resolved, const ColumnsToRead& to_read, Oid table, Snapshot snapshot,
              std::span<const IndexKey> keys, Which which, Datum* values, bool* nulls);

} // namespace detail

// Some columns of a row. What is not passed by value lives in the memory context it was read in.
template <int count>
struct StoredRow {
    Datum values[count];
    bool nulls[count];

    // The columns as the IndexedTable names them.
    Datum get(int column) const
    {
        if (nulls[column])
            elog(ERROR, "column %d of a row is null", column);
        return values[column];
    }
    std::optional<Datum> find(int column) const
    {
        return nulls[column] ? std::nullopt : std::optional(values[column]);
    }
};

// A table of the extension, of which certain columns are read, by one of its indexes. What the
// catalog says is looked up once, and again when it changes.
template <int count>
class IndexedTable {
public:
    using FoundRow = std::optional<StoredRow<count>>;

    // The index is on the first `key_count` of these columns.
    constexpr IndexedTable(const ColumnSpec (&columns)[count], int key_count)
        : columns_(columns), key_count_(key_count)
    {}

    // The first row whose leading keys equal these.
    FoundRow find_first(Oid table, Snapshot snapshot, std::span<const IndexKey> keys)
    {
        return find(table, snapshot, keys, detail::Which::first);
    }

    // The last one.
    FoundRow find_last(Oid table, Snapshot snapshot, std::span<const IndexKey> keys)
    {
        return find(table, snapshot, keys, detail::Which::last);
    }

    // The first one, locked as by FOR UPDATE: waits for whoever is changing it, and shows what it
    // is then. Nothing if it has been deleted.
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
