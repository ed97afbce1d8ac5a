// ProcessUtility hook: stops workers before commands that need a database without other sessions,
// and wakes launcher and relay after commands that concern them.
#pragma once

namespace outbox {

// Installs the hook. Call once, in _PG_init() of a preloaded library.
void set_up_utility_hook();

} // namespace outbox
