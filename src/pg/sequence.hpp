// Draws many values of a sequence at once.
#pragma once

#include "pg/postgres.hpp"

namespace outbox::pg {

// Draws `count` consecutive values and returns the first. Like nextval(), but with one lock of the
// sequence's page, and without changing the session's lastval(). Locks the sequence RowExclusive
// until the end of the transaction. Raises an error unless it has CACHE 1, INCREMENT BY 1 and NO
// CYCLE. The caller has assigned the transaction's xid.
int64 draw_values(Oid sequence, int count);

// Returns the last value drawn; 0 if none was. Reads the page under its lock, so it never returns a
// value that is only in WAL.
int64 last_drawn_value(Oid sequence);

// Makes `value` the next value, as setval() does: a rollback does not undo it. The caller only
// raises the sequence, under a lock.
void set_next_value(Oid sequence, int64 value);

} // namespace outbox::pg
