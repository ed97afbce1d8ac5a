// The simulated server.
#pragma once

#include "pg/postgres.hpp"
#include "play.hpp"

namespace outbox::model {

Snapshot snapshot_of(std::uint32_t number);

// Stores a row that the current session has inserted.
void write_row(Xid xid, Id id, int run_length);

} // namespace outbox::model
