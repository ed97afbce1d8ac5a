// Durability of commits: WAL positions and flushes.
#pragma once

#include "pg/postgres.hpp"

namespace outbox::pg {

// Returns the position to which WAL must be flushed to make the commit of this transaction durable;
// InvalidXLogRecPtr: it is durable. For transactions that a snapshot shows as committed, which they
// are before the flush of an asynchronous commit. Takes XactTruncationLock.
XLogRecPtr commit_flush_position(uint64 xid);

// Flushes WAL up to this position, if it is not flushed yet.
void flush_wal_upto(XLogRecPtr position);

// Returns true if WAL is flushed up to this position.
bool is_wal_flushed_upto(XLogRecPtr position);

// Returns the end of the commit record of this process's last transaction (XactLastCommitEnd).
XLogRecPtr last_commit_position();

// Returns true if synchronous_standby_names is set: a local flush then does not make a commit
// durable.
bool has_synchronous_standbys();

} // namespace outbox::pg
