// The triggers that keep audit_log and audit_chain append-only. Only retention may delete rows,
// between audit_begin_removal() and audit_end_removal().
#pragma once

#include "pg/postgres.hpp"

namespace outbox {

// Registers the xact callbacks that end a removal. Called once, when the library is loaded.
void set_up_append_only_guard();

} // namespace outbox
