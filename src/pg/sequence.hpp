// Ids from a sequence, many at once.
#pragma once

#include "pg/postgres.hpp"

namespace outbox::pg {

// Draws `count` consecutive values and returns the first: as if nextval() had been called as often
// with nobody in between, but with one lock of the sequence's page, and without becoming what the
// session's lastval() speaks of. Refuses a sequence that claims could not reckon with: one that
// hands out blocks, falls or cycles. The transaction must have its xid.
int64 draw_values(Oid sequence, int count);

// The last value that has been drawn; 0 if none has. Never one that is only logged ahead.
int64 last_drawn_value(Oid sequence);

// Makes this the next value. Only upwards, and by one session at a time.
void set_next_value(Oid sequence, int64 value);

} // namespace outbox::pg
