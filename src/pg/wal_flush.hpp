// What a crash could take back.
#pragma once

#include "pg/postgres.hpp"

namespace outbox::pg {

// Up to where the WAL has to be flushed before the commit of this transaction, which was seen to be
// committed, is durable. Invalid: it is already. What a transaction committed asynchronously is
// visible before that.
XLogRecPtr commit_flush_position(uint64 xid);

// Returns when the WAL is flushed up to there.
void flush_wal_upto(XLogRecPtr position);

// Is it flushed up to there without anybody's help?
bool is_wal_flushed_upto(XLogRecPtr position);

// The end of this process's last commit.
XLogRecPtr last_commit_position();

// Must a standby confirm commits? Then a flush on this server says too little.
bool has_synchronous_standbys();

} // namespace outbox::pg
