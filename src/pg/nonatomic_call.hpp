#pragma once

#include "pg/postgres.hpp"

namespace outbox::pg {

// For procedures that wait. A function would run inside its statement's snapshot, a procedure in a
// transaction block inside the block's transaction: neither could wait without holding vacuum back.
void require_nonatomic_call(FunctionCallInfo fcinfo, const char* procedure, const char* hint);

} // namespace outbox::pg
