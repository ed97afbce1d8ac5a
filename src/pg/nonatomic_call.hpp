#pragma once

#include "pg/postgres.hpp"

namespace outbox::pg {

// Raises active_sql_transaction unless a procedure was called outside of a transaction block. For
// procedures that wait: inside a function or a block they would wait with a snapshot or transaction
// open, which holds vacuum back. `procedure` and `hint` are for the message.
void require_nonatomic_call(FunctionCallInfo fcinfo, const char* procedure, const char* hint);

} // namespace outbox::pg
