// Ids from a sequence, many at once.
#pragma once

#include "pg/prelude.hpp"

namespace outbox::pg {

// Values of a sequence in the order that they were drawn in.
struct DrawnIds {
    int64 first;
    int64 second; // the others follow it without a gap

    int64 operator[](int index) const { return index == 0 ? first : second + index - 1; }
};

// Draws `count` values, in one go: as if nextval() had been called as often, but with the lock on
// the sequence's page taken twice. Refuses a sequence that claims could not reckon with: one that
// hands out blocks, falls or cycles. The transaction must have its xid.
DrawnIds draw(Oid sequence, int count);

} // namespace outbox::pg
