// Writes to the server log from code with destructors, in background workers.
#pragma once

#include "pg/postgres.hpp"

#include <string>

namespace outbox::pg {

// Logs a line with level LOG or WARNING. The same message within 10 s is counted instead of logged.
// May throw ServerError.
void log_rate_limited(int level, const std::string& message, const std::string& hint = {});

} // namespace outbox::pg
