// Commands that need a database to themselves, or change who is to be served.
#pragma once

namespace outbox {

// Once, when the library is loaded at server start.
void set_up_utility_hook();

} // namespace outbox
