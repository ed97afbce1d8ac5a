// How transactions end: their commits, what of them is durable, and what a crash leaves.
#pragma once

#include "steps.hpp"

namespace outbox::model {

inline bool is_claimer(const Setting& setting, int session)
{
    return setting.plans[session].role == Plan::claimer;
}

// Everything that is in the WAL.
void flush(State& state);
bool is_flushed(const State& state);

void write_commit_record(State& state, Session& session, bool flushes);

// Snapshots no longer show it as running, and its locks are free. Returns the promise that is
// broken by what a claim hands out with that.
Promise end(const Setting& setting, State& state, int number, bool commits);

// What a session does after its transaction.
void begin_anew(const Setting& setting, State& state, int number);

// What is not flushed has never been.
Promise crash(const Setting& setting, State& state);

} // namespace outbox::model
