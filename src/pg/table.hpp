// Rows into a table without the executor: what COPY does, for a handful of rows.
#pragma once

#include "pg/prelude.hpp"

namespace outbox::pg {

struct TableWriter {
    Relation relation;      // open and locked by the caller
    ResultRelInfo* result;  // only for the indexes, open and locked too
    TupleTableSlot** slots; // virtual, to be filled, `capacity` of them
    int capacity;
};

// True when inserting into the relation is only a matter of heap and indexes: no trigger, no rule,
// no CHECK, no generated column, no index that evaluates anything. Then a TableWriter does all that
// an INSERT would do.
bool is_plain(Relation relation);

// For a relation that is_plain(). Memory comes from the current context.
TableWriter open_writer(Relation relation, int capacity);
void close_writer(TableWriter& writer);

// Empties the slot for new values.
TupleTableSlot* fresh_slot(TableWriter& writer, int index);

// Inserts the first `count` slots, each filled and passed to ExecStoreVirtualTuple().
void insert(TableWriter& writer, int count);

// Which of the writer's indexes the primary key is.
int primary_key(const TableWriter& writer);

// Inserts slot 0. Returns false, and has inserted nothing, if somebody else has a row with the same
// primary key, committed or not.
bool insert_if_unique(TableWriter& writer, int primary_key);

} // namespace outbox::pg
