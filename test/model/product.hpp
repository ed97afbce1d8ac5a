// Calling the product.
#pragma once

#include "claim/claim.hpp"

namespace outbox::model {

// Appends so many events in one call.
void enqueue(int count);

// What an INSERT does with the id that the column's default has given it.
void insert_row(Id id);

ClaimRequest claim_request(int page);

// A backend knows the consumer that it has claimed from last, and looks at another one before it
// waits for its lock. Sees to it that it knows ours, or does not.
void meet(bool our_consumer);

} // namespace outbox::model
