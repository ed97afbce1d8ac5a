// Ends of transactions: commits, durability and a crash.
#pragma once

#include "steps.hpp"

namespace outbox::model {

inline bool is_claimer(const Setting& setting, int session)
{
    return setting.plans[session].role == Plan::claimer;
}

// Makes all written WAL durable.
void flush(State& state);
bool is_flushed(const State& state);

void write_commit_record(State& state, Session& session, bool flushes);

// Ends the transaction: snapshots no longer show it as running, and its locks are released. Returns
// the promise that the batch of a committed claim breaks, if any.
Promise end(const Setting& setting, State& state, int number, bool commits);

// Prepares the session for its next transaction.
void begin_anew(const Setting& setting, State& state, int number);

// Discards everything that is not flushed.
Promise crash(const Setting& setting, State& state);

} // namespace outbox::model
