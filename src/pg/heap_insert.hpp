// Rows into a table without the executor: what COPY does, for a handful of rows.
#pragma once

#include "pg/index_scan.hpp"

#include <span>

namespace outbox::pg {

struct TableWriter {
    Relation relation;      // open and locked by the caller
    ResultRelInfo* result;  // only for the indexes, open and locked too
    bool* checks_unique;    // of each index: has it to be checked for duplicates?
    AttrNumber* not_null;   // of each index: it has only rows with a value in this column; 0: all
    TupleTableSlot** slots; // virtual, to be filled, `capacity` of them
    int capacity;
};

// True when inserting into the relation is only a matter of heap and indexes: no trigger, no rule,
// no CHECK but one of this name, no generated column, no index that evaluates anything but, for a
// partial one, whether a column is null. Then a TableWriter does all that an INSERT would do,
// provided that the caller sees to that CHECK.
bool allows_direct_write(Relation relation, const char* check = nullptr);

// The same, but there may be triggers for what is no INSERT.
bool allows_direct_insert(Relation relation, const char* check);
bool has_insert_triggers(Relation relation);

// Are these, in this order, the relation's columns?
bool has_columns(Relation relation, const ColumnSpec* columns, int count);

// For a relation that allows_direct_write(). Memory comes from the current context.
TableWriter open_table_writer(Relation relation, int capacity);
void close_table_writer(TableWriter& writer);

// Empties the slot for new values.
TupleTableSlot* clear_slot(TableWriter& writer, int index);

// Inserts the first `count` slots, each filled and passed to ExecStoreVirtualTuple().
void insert_rows(TableWriter& writer, int count);

struct ColumnChange {
    int column; // from 0
    Datum value;
    bool isnull;
};

// Inserts or updates one row, past the executor, in a table that has to be as the extension made
// it. Whether it is, is found out once and again when the catalog changes.
class DirectTable {
public:
    template <int count>
    constexpr explicit DirectTable(const ColumnSpec (&columns)[count])
        : columns_(columns), count_(count)
    {}

    // Is the table as it was made? Then nobody else takes part in what is done to it.
    bool is_as_installed(Oid table);

    // False, and nothing is inserted, if somebody has changed the table.
    bool insert(Oid table, const Datum* values, const bool* nulls);

    // Changes columns of the row with this primary key, a bigint; somebody else must not be at it.
    // False, and nothing is changed, if somebody has changed the table.
    bool update(Oid table, int64 key, std::span<const ColumnChange> changes);

private:
    bool is_definition_unchanged(Relation table);

    const ColumnSpec* columns_;
    int count_;
    uint64 known_generation_ = PG_UINT64_MAX;
    bool is_definition_unchanged_ = false;
};

// Which of the writer's indexes the primary key is. There must be one.
int primary_key_index(const TableWriter& writer);

} // namespace outbox::pg
