// What can happen next in a state, and what is promised of it.
#pragma once

#include "state.hpp"

#include <cstddef>
#include <vector>

namespace outbox::model {

enum class Action : Byte {
    go_on,
    commit,
    commit_lazily, // without waiting for the flush
    abort,
    prepare,
    flush, // the WAL writer
    crash,
};

inline constexpr std::size_t action_count = static_cast<std::size_t>(Action::crash) + 1;

inline constexpr Byte the_server = max_sessions;

struct Step {
    Byte who; // a session, or the server
    Action action;
};

enum class Promise : Byte {
    none,
    nothing_lost,     // every committed message is handed out in the end
    nothing_repeated, // by claims that commit
    committed_only,   // is handed out
    durable_only,     // is handed out
    in_order,         // of commits, for messages of an aggregate whose writers lock its row
    batches_right,    // have the ids that their callers have got
    cursor_right,     // about which messages it has passed, and how far it knows everything
};

State first_state(const Setting& setting);

std::vector<Step> steps_from(const Setting& setting, const State& state);

// Takes the step. Returns the promise that it breaks, if any.
Promise take(const Setting& setting, State& state, Step step);

// The promises that a state has to keep.
Promise check(const Setting& setting, const State& state);

} // namespace outbox::model
