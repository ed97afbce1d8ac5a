#include "steps.hpp"

#include "kept.hpp"
#include "play.hpp"

#include <algorithm>

namespace outbox::model {

namespace {

bool is_claimer(const Setting& setting, int session)
{
    return setting.plans[session].role == Plan::claimer;
}

// ---- durability

bool can_crash(const Setting& setting, const State& state)
{
    return setting.crash && !state.server.has_crashed;
}

// The newest batch whose commit record is written.
void note_newest(const Session& session, Byte& token, std::uint32_t& cursor)
{
    if (session.token > token) {
        token = session.token;
        cursor = session.new_cursor;
    }
}

void flush(State& state)
{
    Server& server = state.server;
    server.durable_next_xid = server.logged_next_xid;
    server.durable_seq = server.logged_seq;
    server.durable_token = server.token;
    server.durable_cursor = server.cursor;
    for (Session& session : state.sessions) {
        if (session.phase == Phase::committing) {
            session.is_durable = true;
            note_newest(session, server.durable_token, server.durable_cursor);
        }
        for (Row& row : session.rows)
            row.is_durable = row.state == RowState::committed;
    }
}

bool is_flushed(const State& state)
{
    const Server& server = state.server;
    bool all = true;
    for (const Session& session : state.sessions) {
        all = all && (session.phase != Phase::committing || session.is_durable);
        for (const Row& row : session.rows)
            all = all && (row.state != RowState::committed || row.is_durable);
    }
    return all && server.durable_next_xid == server.logged_next_xid &&
           server.durable_seq == server.logged_seq && server.durable_cursor == server.cursor;
}

// ---- the end of a transaction

Row* find_row(State& state, Byte id)
{
    for (Session& session : state.sessions)
        for (Row& row : session.rows)
            if (row.state != RowState::none && row.id == id)
                return &row;
    return nullptr;
}

// Has an earlier change of the aggregate been overtaken by this one?
bool overtakes(const State& state, const Session& session, const Row& row)
{
    if (session.rank == 0)
        return false;
    for (const Session& other : state.sessions)
        for (const Row& earlier : other.rows)
            if (earlier.state == RowState::committed && !earlier.is_handed_out && other.rank != 0 &&
                (other.rank < session.rank || (&other == &session && earlier.id < row.id)))
                return true;
    return false;
}

Promise hand_out(State& state, Byte id)
{
    Row* row = find_row(state, id);
    if (row == nullptr || row->state != RowState::committed)
        return Promise::committed_only;
    if (row->is_handed_out)
        return Promise::nothing_repeated;
    for (const Session& session : state.sessions)
        if (row >= session.rows && row < session.rows + max_messages &&
            overtakes(state, session, *row))
            return Promise::in_order;
    row->is_handed_out = true;
    return Promise::none;
}

void begin_anew(const Setting& setting, State& state, int number)
{
    Session& session = state.sessions[number];
    Session next = {};
    std::copy_n(session.rows, max_messages, next.rows);
    next.rank = session.rank;
    session = next;
    if (is_claimer(setting, number)) {
        session.has_appended = setting.plans[number].appends > 0;
        begin(setting, state, number);
    } else {
        session.phase = Phase::over;
    }
}

// Where there is one batch, there is nothing that its token could be compared with.
void forget_tokens(State& state)
{
    for (const Session& session : state.sessions)
        if (session.token != 0)
            return;
    state.server.token = state.server.durable_token = 0;
}

// Snapshots no longer show it as running, and its locks are free.
Promise end(const Setting& setting, State& state, int number, bool commits)
{
    Session& session = state.sessions[number];
    Server& server = state.server;
    Promise broken = Promise::none;
    server.latest_completed = std::max(server.latest_completed, session.xid);
    if (commits && session.holds_row)
        session.rank = ++server.commits;
    for (Row& row : session.rows)
        if (row.state == RowState::written) {
            row.state = commits ? RowState::committed : RowState::dead;
            row.is_durable = session.is_durable;
        }
    if (commits) {
        note_newest(session, server.token, server.cursor);
        for (int i = 0; i < session.claimed_count && broken == Promise::none; ++i)
            broken = hand_out(state, session.claimed[i]);
    }
    begin_anew(setting, state, number);
    forget_tokens(state);
    return broken;
}

void write_commit_record(State& state, Session& session, bool flushes)
{
    session.phase = Phase::committing;
    if (flushes)
        flush(state);
}

// ---- a crash: what is not flushed has never been

// The xids of rows that nobody will ever see may be used again, so they do not stay either.
Promise remove_lost_rows(State& state)
{
    Promise broken = Promise::none;
    for (Session& session : state.sessions)
        for (Row& row : session.rows)
            if (row.state == RowState::dead ||
                (row.state == RowState::committed && !row.is_durable)) {
                if (row.is_handed_out)
                    broken = Promise::durable_only;
                row = {};
            }
    return broken;
}

Promise crash(const Setting& setting, State& state)
{
    Server& server = state.server;
    Promise broken = Promise::none;
    server.has_crashed = true;
    for (int i = 0; i < max_sessions; ++i) {
        Session& session = state.sessions[i];
        if (session.phase == Phase::preparing)
            session.phase = Phase::prepared;
        if (setting.plans[i].role == Plan::nobody || session.phase == Phase::over ||
            session.phase == Phase::prepared)
            continue;
        const bool commits = session.phase == Phase::committing && session.is_durable;
        const Promise by_end = end(setting, state, i, commits);
        if (broken == Promise::none)
            broken = by_end;
    }
    if (broken == Promise::none)
        broken = remove_lost_rows(state);
    server.next_xid = server.logged_next_xid = server.durable_next_xid;
    server.latest_completed = server.next_xid - 1;
    server.seq = server.logged_seq = server.durable_seq;
    server.token = server.durable_token;
    server.cursor = server.durable_cursor;
    return broken;
}

// ---- the end of everything

// Has it nothing more to do, or to look for more?
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
    // A claim that has found nothing.
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
    // Nobody will ever ask what is durable.
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
