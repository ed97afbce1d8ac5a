#include "steps.hpp"

#include "ending.hpp"
#include "kept.hpp"
#include "play.hpp"

#include <algorithm>

namespace outbox::model {

namespace {

bool can_crash(const Setting& setting, const State& state)
{
    return setting.crash && !state.server.has_crashed;
}

// ---- end of a story

// True if the session has nothing to do, or is a claimer at the start of a claim.
bool is_at_rest(const Setting& setting, const State& state, int number)
{
    const Session& session = state.sessions[number];
    if (!is_claimer(setting, number))
        return session.phase == Phase::over;
    const bool will_append = setting.plans[number].appends > 0 && !session.has_appended;
    return session.phase == Phase::active && session.answered == 0 && !will_append;
}

bool is_all_at_rest(const Setting& setting, const State& state)
{
    for (int i = 0; i < max_sessions; ++i)
        if (!is_at_rest(setting, state, i))
            return false;
    return true;
}

bool is_anything_left(const State& state)
{
    for (const Session& session : state.sessions)
        for (const Row& row : session.rows)
            if (row.state == RowState::committed && !row.is_handed_out)
                return true;
    return false;
}

bool is_free(const State& state, Question question)
{
    for (const Session& session : state.sessions)
        if ((question == Question::consumer_lock && session.holds_consumer) ||
            (question == Question::row_lock && session.holds_row))
            return false;
    return true;
}

void add_endings(const Setting& setting, const State& state, Byte number, std::vector<Step>& steps)
{
    const Session& session = state.sessions[number];
    const bool claims = is_claimer(setting, number);
    if (setting.asynchronous && !session.forces_sync)
        steps.push_back({number, Action::commit_lazily});
    steps.push_back({number, Action::commit});
    if (claims ? state.server.claims_given_up < setting.claims_given_up : setting.aborts)
        steps.push_back({number, Action::abort});
    if (!claims && setting.prepares)
        steps.push_back({number, Action::prepare});
}

void add_steps(const Setting& setting, const State& state, Byte number, std::vector<Step>& steps)
{
    const Session& session = state.sessions[number];
    switch (session.phase) {
    case Phase::active:
        if (is_free(state, session.pending))
            steps.push_back({number, Action::go_on});
        break;
    case Phase::ending:
        add_endings(setting, state, number, steps);
        break;
    case Phase::committing:
    case Phase::preparing:
        steps.push_back({number, Action::go_on});
        break;
    case Phase::prepared:
        steps.push_back({number, Action::commit});
        steps.push_back({number, Action::abort});
        break;
    case Phase::over:
        break;
    }
}

Promise go(const Setting& setting, State& state, int number)
{
    Session& session = state.sessions[number];
    if (session.phase == Phase::committing)
        return end(setting, state, number, true);
    if (session.phase == Phase::preparing) {
        session.phase = Phase::prepared;
        return Promise::none;
    }
    go_on(setting, state, number);
    if (session.is_batch_wrong)
        return Promise::batches_right;
    if (session.phase != Phase::ending || session.xid != 0)
        return Promise::none;
    // The claim has found no message.
    const bool has_missed = session.is_alone && is_anything_left(state);
    begin_anew(setting, state, number);
    return has_missed ? Promise::nothing_lost : Promise::none;
}

Promise take_step(const Setting& setting, State& state, Step step)
{
    Session& session = state.sessions[step.who];
    switch (step.action) {
    case Action::go_on:
        return go(setting, state, step.who);
    case Action::commit:
        write_commit_record(state, session, true);
        return Promise::none;
    case Action::commit_lazily:
        write_commit_record(state, session, false);
        return Promise::none;
    case Action::abort:
        state.server.claims_given_up += is_claimer(setting, step.who);
        return end(setting, state, step.who, false);
    case Action::prepare:
        session.phase = Phase::preparing;
        flush(state);
        return Promise::none;
    case Action::flush:
        flush(state);
        return Promise::none;
    case Action::crash:
        return crash(setting, state);
    }
    return Promise::none;
}

} // namespace

State first_state(const Setting& setting)
{
    State state = {};
    Server& server = state.server;
    server.next_xid = server.logged_next_xid = server.durable_next_xid = first_xid;
    server.latest_completed = first_xid - 1;
    for (int i = 0; i < max_sessions; ++i)
        if (setting.plans[i].role == Plan::nobody)
            state.sessions[i].phase = Phase::over;
        else
            begin(setting, state, i);
    return state;
}

std::vector<Step> steps_from(const Setting& setting, const State& state)
{
    std::vector<Step> steps;
    for (Byte i = 0; i < max_sessions; ++i)
        add_steps(setting, state, i, steps);
    if (can_crash(setting, state)) {
        if (setting.asynchronous && !is_flushed(state))
            steps.push_back({the_server, Action::flush});
        steps.push_back({the_server, Action::crash});
    }
    return steps;
}

Promise take(const Setting& setting, State& state, Step step)
{
    const bool was_quiet = is_all_at_rest(setting, state);
    const Promise broken = take_step(setting, state, step);
    for (int i = 0; i < max_sessions; ++i)
        state.sessions[i].is_alone &= i == step.who;
    if (was_quiet && step.who != the_server)
        state.sessions[step.who].is_alone = true;
    // Without a crash, durability makes no difference, so states need not differ in it.
    if (!can_crash(setting, state))
        flush(state);
    return broken;
}

Promise check(const Setting& setting, const State& state)
{
    if (!setting.asks_cursor)
        return Promise::none;
    const Cursor cursor = cursors()[state.server.cursor].view();
    const Id known_upto = cursor.known_upto();
    for (const Session& session : state.sessions)
        for (const Row& row : session.rows)
            if ((row.state == RowState::written || row.state == RowState::committed) &&
                (cursor.has_passed(row.xid, row.id) != (row.is_handed_out != 0) ||
                 (!row.is_handed_out && row.id <= known_upto)))
                return Promise::cursor_right;
    return Promise::none;
}

} // namespace outbox::model
