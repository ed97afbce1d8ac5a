// The launcher: one background worker for the server, which sees to it that every database with the
// extension has a relay.
#pragma once

namespace outbox {

// Once, when the library is loaded at server start.
void register_launcher();

} // namespace outbox
