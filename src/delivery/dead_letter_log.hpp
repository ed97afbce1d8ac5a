// Writes dead letters to the server log, at a limited rate.
#pragma once

#include "core/id_ranges.hpp"
#include "pg/postgres.hpp"

namespace outbox {

// Writes a line with consumer, ids and error to the server log; beyond the rate limit only counts
// the ids, for the next line. Writes at once, not at commit: after a rollback the line reports a
// dead letter that does not exist. Reads _outbox.consumers; call inside as_owner().
void log_dead_letters(int32 consumer, IdRanges ids, Datum error);

} // namespace outbox
