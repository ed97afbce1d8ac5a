// Fencing tokens, from the sequence _outbox.token_seq.
#pragma once

#include "pg/postgres.hpp"

namespace outbox {

// Draws `count` consecutive fencing tokens and returns the first. Each is greater than all tokens
// drawn before, also across crashes and promotions. Assigns the transaction an xid.
int64 draw_tokens(int count);

} // namespace outbox
