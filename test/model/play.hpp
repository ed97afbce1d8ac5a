// Playing a session: the product's own code runs, on what the state remembers of the server's
// answers, up to the first question that has none yet. There it is left, as an error of the server
// would leave it, and when the session is to go on it starts again and finds one answer more.
#pragma once

#include "core/cursor.hpp"
#include "state.hpp"

namespace outbox::model {

// What is being played.
struct Play {
    State* state;
    const Setting* setting;
    int number; // of the session

    bool may_ask; // one question that has not been answered yet
    int at;       // how many have been asked
    Byte own_xid; // as far as it is known by now
    int ids_wanted;
    int rows; // that were written
    int put;  // messages that the caller of the claim has got
    Byte put_ids[max_page];
    std::uint32_t old_snapshot; // of a transaction that has one for good

    Session& session() const { return state->sessions[number]; }
    const Plan& plan() const { return setting->plans[number]; }
};

extern Play playing;

// The server's answer.
std::uint32_t ask(Question question);

// Forgets everything that was allocated since the session began to play.
void free_memory();

// Lets the session run to its first question, or with an answer to the one that it waits for, to
// the next: or to the end of its transaction.
void begin(const Setting& setting, State& state, int number);
void go_on(const Setting& setting, State& state, int number);

} // namespace outbox::model
