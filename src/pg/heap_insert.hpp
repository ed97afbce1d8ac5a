// Writes rows with table_tuple_insert(), table_multi_insert() and index_insert(), without planner
// and executor, as COPY does. Privileges, triggers, rules, row security and CHECK and NOT NULL
// constraints are not evaluated, only unique indexes: callers check allows_direct_insert() first.
#pragma once

#include "pg/index_scan.hpp"

#include <span>

namespace outbox::pg {

// A table with open indexes, and slots for new rows.
struct TableWriter {
    Relation relation;      // opened and locked by the caller
    ResultRelInfo* result;  // holds the indexes, open and locked
    bool* checks_unique;    // per index: whether inserts check it for duplicates
    AttrNumber* not_null;   // per index: the column of its predicate IS NOT NULL; 0: no predicate
    TupleTableSlot** slots; // `capacity` virtual slots
    int capacity;
};

// Returns true if a TableWriter does all that an INSERT or UPDATE would do: a plain table without
// triggers, rules, forced row security, generated columns and CHECKs other than `check`, and
// without deferrable, exclusion and expression indexes; a partial index may have one IS NOT NULL.
// The caller guarantees the constraint named `check`.
bool allows_direct_write(Relation relation, const char* check = nullptr);

// Returns true if a TableWriter does all that an INSERT would do: conditions as for
// allows_direct_write(), but triggers for other events than INSERT are allowed.
bool allows_direct_insert(Relation relation, const char* check);

// Returns true if the relation has an INSERT trigger of any kind.
bool has_insert_triggers(Relation relation);

// Returns true if the relation has exactly these columns in this order, with these types, and no
// NOT NULL where `may_be_null` is set.
bool has_columns(Relation relation, const ColumnSpec* columns, int count);

// Opens the indexes of a relation that allows_direct_insert(), and makes slots for `capacity` rows.
// Memory comes from the current context.
TableWriter open_table_writer(Relation relation, int capacity);

// Frees the slots and closes the indexes; the relation stays open.
void close_table_writer(TableWriter& writer);

// Returns slot `index`, emptied for new values.
TupleTableSlot* clear_slot(TableWriter& writer, int index);

// Inserts the first `count` slots, each stored with ExecStoreVirtualTuple(), into heap and indexes.
// Raises unique_violation.
void insert_rows(TableWriter& writer, int count);

// A new value of one column, for DirectTable::update().
struct ColumnChange {
    int column; // from 0
    Datum value;
    bool isnull;
};

// Inserts or updates single rows of an internal table without the executor, while the table has the
// definition of the install script. The definition is checked once and again after each change of
// catalog_generation().
class DirectTable {
public:
    template <int count>
    constexpr explicit DirectTable(const ColumnSpec (&columns)[count])
        : columns_(columns), count_(count)
    {}

    // Returns true if the table has its columns and allows_direct_write(): no trigger or rule of
    // another extension or user takes part in a write. Locks the table RowExclusive.
    bool is_as_installed(Oid table);

    // Inserts a row into the table, which it locks RowExclusive. Returns false, without inserting,
    // if the table's definition has changed.
    bool insert(Oid table, const Datum* values, const bool* nulls);

    // Updates columns of the row with this primary key, a bigint. Locks the table RowExclusive. The
    // caller holds a lock that keeps other sessions from changing the row: a concurrent change
    // raises an error. Returns false, without updating, if the table's definition has changed.
    bool update(Oid table, int64 key, std::span<const ColumnChange> changes);

private:
    // Returns true if the table has_columns() and allows_direct_write(); cached per
    // catalog_generation().
    bool is_definition_unchanged(Relation table);

    const ColumnSpec* columns_;
    int count_;
    uint64 known_generation_ = PG_UINT64_MAX;
    bool is_definition_unchanged_ = false;
};

// Returns the position of the primary key among the writer's indexes. Raises an error if there is
// none.
int primary_key_index(const TableWriter& writer);

} // namespace outbox::pg
