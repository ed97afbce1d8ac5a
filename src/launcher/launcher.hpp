// The launcher: one background worker per server, which starts a relay for every database with the
// extension, and maintenance workers when they are due.
#pragma once

namespace outbox {

// Registers the background worker. Call once, in _PG_init() of a preloaded library.
void register_launcher();

} // namespace outbox
