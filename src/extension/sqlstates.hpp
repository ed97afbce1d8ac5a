// SQLSTATEs of our own: what a worker does about each is different, and no class of the server's
// says it.
#pragma once

#include "pg/postgres.hpp"

namespace outbox {

inline constexpr int lease_lost = MAKE_SQLSTATE('O', 'B', '0', '0', '1');
inline constexpr int token_unknown = MAKE_SQLSTATE('O', 'B', '0', '0', '2');
inline constexpr int id_not_in_batch = MAKE_SQLSTATE('O', 'B', '0', '0', '3');

} // namespace outbox
