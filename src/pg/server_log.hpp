// The server's log, for code that has destructors.
#pragma once

#include "pg/postgres.hpp"

#include <string>

namespace outbox::pg {

// LOG or WARNING. The same line again within seconds is counted instead.
void log_rate_limited(int level, const std::string& message, const std::string& hint = {});

} // namespace outbox::pg
