// The relay: a background worker for one database, which brings its events to its sinks.
#pragma once

#include "pg/prelude.hpp"

namespace outbox {

// Is this database one that the settings want served?
bool is_served(const char* database);

inline constexpr const char* relay_function = "outbox_relay_main";

} // namespace outbox
