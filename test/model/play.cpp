#include "play.hpp"

#include "claim/claim.hpp"
#include "kept.hpp"
#include "planted.hpp"
#include "product.hpp"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>

extern "C" Datum outbox_next_id(FunctionCallInfo);

namespace outbox::model {

Play playing;

namespace {

std::jmp_buf leave;

// Number of sequence values logged ahead: 32 in the server, 1 here, so that a few draws exhaust
// them.
constexpr Byte log_ahead = 1;

KeptSnapshot take_snapshot(const State& state, const Session& self)
{
    KeptSnapshot snapshot;
    snapshot.xmax = state.server.latest_completed + 1;
    snapshot.cursor = state.server.cursor;
    for (const Session& session : state.sessions) {
        const bool is_running = session.xid != 0 && session.phase != Phase::over;
        if (&session == &self || !is_running || session.xid >= snapshot.xmax)
            continue;
        snapshot.running.push_back(session.xid);
        if (session.phase == Phase::preparing)
            snapshot.running.push_back(session.xid);
    }
    std::ranges::sort(snapshot.running, std::greater());
    return snapshot;
}

Byte draw_ids(Server& server, int count)
{
    const Byte first = server.seq + 1;
    server.seq += count;
    if (server.seq > server.logged_seq)
        server.logged_seq = server.seq + log_ahead;
    return first;
}

std::uint32_t answer(Question question)
{
    State& state = *playing.state;
    Session& session = playing.session();
    switch (question) {
    case Question::row_lock:
        session.holds_row = true;
        return true;
    case Question::xid:
        return session.xid = state.server.next_xid++;
    case Question::id:
        return draw_ids(state.server, playing.ids_wanted);
    case Question::consumer_lock:
        session.holds_consumer = true;
        return true;
    case Question::cursor:
        return state.server.cursor;
    case Question::snapshot:
        return snapshots().number_of(take_snapshot(state, session));
    case Question::sequence:
        return state.server.seq;
    case Question::next_xid:
        return state.server.next_xid;
    case Question::none:
        break;
    }
    std::abort();
}

class Caller final : public MessageReceiver {
public:
    void receive(const Message& message, const Delivery&) override
    {
        if (playing.put == max_page)
            std::abort();
        playing.put_ids[playing.put++] = static_cast<Byte>(message.id());
    }
};

void append()
{
    const Plan& plan = playing.plan();
    if (plan.locks_row) {
        (void)GetTopFullTransactionId();
        (void)ask(Question::row_lock);
    }
    for (int i = 0; i < plan.appends; ++i)
        if (plan.inserts)
            insert_row(static_cast<Id>(outbox_next_id(nullptr)));
        else
            enqueue_as_planned(plan.run_length);
}

void run_transaction()
{
    const Plan& plan = playing.plan();
    if (!playing.session().has_appended)
        append();
    if (plan.role != Plan::claimer)
        return;
    meet(playing.setting->knows_consumer);
    Caller caller;
    claim_as_planned(claim_request(playing.setting->page), caller);
    Session& session = playing.session();
    session.claimed_count = static_cast<Byte>(playing.put);
    std::copy_n(playing.put_ids, playing.put, session.claimed);
}

// Returns true if the transaction has reached its end.
bool play(const Setting& setting, State& state, int number, bool may_ask)
{
    free_memory();
    playing = {};
    playing.setting = &setting;
    playing.state = &state;
    playing.number = number;
    playing.may_ask = may_ask;
    if (_setjmp(leave) != 0)
        return false;
    run_transaction();
    return true;
}

} // namespace

std::uint32_t ask(Question question)
{
    Session& session = playing.session();
    if (playing.at < session.answered)
        return session.answers[playing.at++];
    if (!playing.may_ask) {
        session.pending = question;
        longjmp(leave, 1);
    }
    playing.may_ask = false;
    if (session.answered == max_answers) {
        std::fprintf(stderr, "a session asks more than a state can remember\n");
        std::abort();
    }
    session.answers[session.answered++] = answer(question);
    return session.answers[playing.at++];
}

void begin(const Setting& setting, State& state, int number)
{
    Session& session = state.sessions[number];
    session.phase = Phase::active;
    if (play(setting, state, number, false))
        std::abort(); // a transaction without a question
}

void go_on(const Setting& setting, State& state, int number)
{
    if (!play(setting, state, number, true))
        return;
    Session& session = state.sessions[number];
    session.pending = Question::none;
    session.phase = Phase::ending;
}

} // namespace outbox::model
