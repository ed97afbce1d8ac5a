// Calls of the product.
#pragma once

#include "claim/claim.hpp"

namespace outbox::model {

// Appends `count` events in one call.
void enqueue(int count);

// An INSERT with an id from the column's default.
void insert_row(Id id);

ClaimRequest claim_request(int page);

// A backend caches the consumer of its last claim; for another consumer it reads the row before
// waiting for its lock. Fills the cache with our consumer, or with another one.
void meet(bool our_consumer);

} // namespace outbox::model
