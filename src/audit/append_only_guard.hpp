// The audit log and its chain are append-only; retention alone removes rows.
#pragma once

#include "pg/postgres.hpp"

namespace outbox {

// Registers the callbacks; once, when the library is loaded.
void set_up_append_only_guard();

} // namespace outbox
