// Plays a session: runs the product's code on the answers of the server that the state remembers,
// up to the first question without an answer. There a longjmp leaves the code, as an error of the
// server would. To go on, the session starts again with one more answer.
#pragma once

#include "core/cursor.hpp"
#include "state.hpp"

namespace outbox::model {

// The session that is being played.
struct Play {
    State* state;
    const Setting* setting;
    int number; // index of the session

    bool may_ask; // one question without a stored answer
    int at;       // questions asked so far
    Byte own_xid; // 0 while not assigned
    int ids_wanted;
    int rows; // written so far
    int put;  // messages delivered to the caller of the claim
    Byte put_ids[max_page];
    std::uint32_t old_snapshot; // of a transaction that keeps one snapshot (a planted bug)

    Session& session() const { return state->sessions[number]; }
    const Plan& plan() const { return setting->plans[number]; }
};

extern Play playing;

// Returns the server's answer, or leaves the session with a longjmp.
std::uint32_t ask(Question question);

// Frees all allocations since the session began to play.
void free_memory();

// Runs the session to its first question; go_on() answers the pending question and runs to the next
// one, or to the end of the transaction.
void begin(const Setting& setting, State& state, int number);
void go_on(const Setting& setting, State& state, int number);

} // namespace outbox::model
