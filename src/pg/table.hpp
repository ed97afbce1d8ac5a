// Rows into a table without the executor's start-up: what COPY does, for a handful of rows.
#pragma once

#include "pg/prelude.hpp"

namespace outbox::pg {

struct TableWriter {
    Relation relation; // open and locked by the caller
    EState* estate;
    ResultRelInfo* result;
    TupleTableSlot** slots; // virtual slots to be filled, `capacity` of them
    int capacity;
};

// True when inserting into the relation is only a matter of heap and indexes: no trigger, no rule,
// no CHECK, no generated column, no index that evaluates anything. Then a TableWriter does all that
// an INSERT would do.
bool is_plain(Relation relation);

// `unique_waits`: the caller resolves conflicts with insert_unless_exists().
TableWriter open_writer(Relation relation, int capacity, bool unique_waits);
void close_writer(TableWriter& writer);

// Empties the slot for new values.
TupleTableSlot* fresh_slot(TableWriter& writer, int index);

// Inserts the first `count` slots, each filled and passed to ExecStoreVirtualTuple().
void insert(TableWriter& writer, int count);

// Inserts slot 0 and returns true; or returns false, with the place of the row that has the same
// unique key. Waits for the end of another transaction that is about to insert or delete such a
// row. INSERT … ON CONFLICT DO NOTHING does the same.
bool insert_unless_exists(TableWriter& writer, ItemPointer existing);

} // namespace outbox::pg
