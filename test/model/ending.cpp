#include "ending.hpp"

#include "play.hpp"

#include <algorithm>

namespace outbox::model {

namespace {

// Applies the session's batch if it is newer than `token`. For the batches with a written commit
// record.
void note_newest(const Session& session, Byte& token, std::uint32_t& cursor)
{
    if (session.token > token) {
        token = session.token;
        cursor = session.new_cursor;
    }
}

Row* find_row(State& state, Byte id)
{
    for (Session& session : state.sessions)
        for (Row& row : session.rows)
            if (row.state != RowState::none && row.id == id)
                return &row;
    return nullptr;
}

// True if an earlier change of the aggregate is committed and not delivered yet.
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

Promise deliver_batch(State& state, Byte id)
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

// While no session has a token, the token of the newest batch is compared with no other, so states
// need not differ in it.
void forget_tokens(State& state)
{
    for (const Session& session : state.sessions)
        if (session.token != 0)
            return;
    state.server.token = state.server.durable_token = 0;
}

// Removes rows that no snapshot can show after the crash: their xids may be assigned again.
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

} // namespace

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

void write_commit_record(State& state, Session& session, bool flushes)
{
    session.phase = Phase::committing;
    if (flushes)
        flush(state);
}

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
            broken = deliver_batch(state, session.claimed[i]);
    }
    begin_anew(setting, state, number);
    forget_tokens(state);
    return broken;
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

} // namespace outbox::model
