// Dead letters are worth a line in the server's log, but not a line each when they are many.
#pragma once

#include "core/id_ranges.hpp"
#include "pg/postgres.hpp"

namespace outbox {

// Call inside pg::as_owner(). If the transaction is rolled back, the line was premature.
void log_dead_letters(int32 consumer, IdRanges ids, Datum error);

} // namespace outbox
