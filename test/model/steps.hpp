// The possible steps from a state, and the promises.
#pragma once

#include "state.hpp"

#include <cstddef>
#include <vector>

namespace outbox::model {

enum class Action : Byte {
    go_on,
    commit,
    commit_lazily, // does not wait for the flush
    abort,
    prepare,
    flush, // by the WAL writer
    crash,
};

inline constexpr std::size_t action_count = static_cast<std::size_t>(Action::crash) + 1;

inline constexpr Byte the_server = max_sessions;

struct Step {
    Byte who; // a session, or the_server
    Action action;
};

enum class Promise : Byte {
    none,
    nothing_lost,     // every committed message is delivered eventually
    nothing_repeated, // no message is delivered twice by committed claims
    committed_only,   // only committed messages are delivered
    durable_only,     // no delivered message is lost by a crash
    in_order, // messages of an aggregate are delivered in commit order if its writers lock its row
    batches_right, // a batch has the ids that were delivered to its caller
    cursor_right,  // has_passed() and known_upto() of the cursor are correct
};

State first_state(const Setting& setting);

std::vector<Step> steps_from(const Setting& setting, const State& state);

// Takes the step. Returns the promise that it breaks, if any.
Promise take(const Setting& setting, State& state, Step step);

// Returns the promise that the state itself breaks, if any.
Promise check(const Setting& setting, const State& state);

} // namespace outbox::model
