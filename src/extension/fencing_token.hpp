#pragma once

#include "pg/postgres.hpp"

namespace outbox {

// A fencing token: greater than every one before, also across crashes and promotions. Draws `count`
// of them and returns the first.
int64 draw_tokens(int count);

} // namespace outbox
