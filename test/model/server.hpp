// The server that the product runs on here.
#pragma once

#include "pg/postgres.hpp"
#include "play.hpp"

namespace outbox::model {

Snapshot snapshot_of(std::uint32_t number);

// The row that an insert has made.
void write_row(Xid xid, Id id, int run_length);

} // namespace outbox::model
