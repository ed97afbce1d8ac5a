// Writes dead letters to the server log, at a limited rate.
#pragma once

#include "core/id_ranges.hpp"
#include "pg/postgres.hpp"

namespace outbox {

// Logs the consumer, the ids and the error. Writes at once, not at commit: after a rollback the
// line reports a dead letter that does not exist. Reads _outbox.consumers; call inside as_owner().
void log_dead_letters(int32 consumer, IdRanges ids, Datum error);

} // namespace outbox
