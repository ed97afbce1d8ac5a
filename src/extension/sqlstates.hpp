// SQLSTATEs of the extension, in class OB. Clients handle each of them differently, and no standard
// SQLSTATE means the same.
#pragma once

#include "pg/postgres.hpp"

namespace outbox {

inline constexpr int lease_lost = MAKE_SQLSTATE('O', 'B', '0', '0', '1');
inline constexpr int token_unknown = MAKE_SQLSTATE('O', 'B', '0', '0', '2');
inline constexpr int id_not_in_batch = MAKE_SQLSTATE('O', 'B', '0', '0', '3');

} // namespace outbox
