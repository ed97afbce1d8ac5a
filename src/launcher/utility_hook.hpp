// Commands that need a database to themselves, or change who is to be served.
#pragma once

namespace outbox {

// Once, when the library is loaded at server start.
void watch_commands();

} // namespace outbox
