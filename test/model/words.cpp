#include "words.hpp"

#include "kept.hpp"

namespace outbox::model {

namespace {

std::string name_of(const Setting& setting, int who)
{
    if (who == the_server)
        return "server";
    int number = 1;
    for (int i = 0; i < who; ++i)
        number += setting.plans[i].role == setting.plans[who].role;
    const bool writes = setting.plans[who].role == Plan::writer;
    return (writes ? "writer " : "claimer ") + std::to_string(number);
}

std::string in_words(std::span<const RunningRange> running)
{
    std::string words = "{";
    for (const RunningRange& range : running) {
        words += words.size() > 1 ? ", " : "";
        words += std::to_string(range.from);
        if (range.upto > range.from + 1)
            words += "-" + std::to_string(range.upto - 1);
        words += " above " + std::to_string(range.above);
    }
    return words + "}";
}

std::string in_words(const Position& position)
{
    return "seq " + std::to_string(position.seq) + " except " + in_words(position.running);
}

std::string in_words(std::uint32_t number)
{
    const Cursor cursor = cursors()[number].view();
    std::string words = "passed " + in_words(cursor.passed);
    if (cursor.target)
        words +=
            ", target " + in_words(*cursor.target) + " up to id " + std::to_string(cursor.last_id);
    return words;
}

std::string in_words(const KeptSnapshot& snapshot)
{
    std::string words = "xmax " + std::to_string(snapshot.xmax) + ", running";
    for (const Xid xid : snapshot.running)
        words += " " + std::to_string(xid);
    return words + (snapshot.running.empty() ? " none" : "");
}

std::string answer_in_words(Question question, std::uint32_t value, const Plan& plan)
{
    switch (question) {
    case Question::row_lock:
        return "locks the aggregate's row";
    case Question::xid:
        return "gets xid " + std::to_string(value);
    case Question::id:
        return plan.run_length == 1
                   ? "draws id " + std::to_string(value)
                   : "draws ids " + std::to_string(value) + " to " +
                         std::to_string(value + static_cast<std::uint32_t>(plan.run_length) - 1);
    case Question::consumer_lock:
        return "locks the consumer";
    case Question::cursor:
        return "reads the cursor: " + in_words(value);
    case Question::snapshot:
        return "takes a snapshot: " + in_words(snapshots()[value]);
    case Question::sequence:
        return "reads the sequence: " + std::to_string(value);
    case Question::next_xid:
        return "reads the next xid: " + std::to_string(value);
    case Question::none:
        break;
    }
    return "";
}

std::string batch_in_words(const Session& session)
{
    std::string words;
    for (int i = 0; i < session.claimed_count; ++i)
        words += " " + std::to_string(session.claimed[i]);
    return words;
}

// Describes what the session did with the answer to its question.
std::string step_in_words(const Plan& plan, const Server& server, const Session& before,
                          const Session& after)
{
    if (before.phase == Phase::committing)
        return before.claimed_count > 0 ? "is committed: has handed out" + batch_in_words(before)
                                        : "is committed";
    if (before.phase == Phase::preparing)
        return "is prepared";
    // The answer is discarded when it ends the transaction.
    if (after.answered <= before.answered) {
        const Question question = before.pending;
        const std::uint32_t value = question == Question::next_xid ? server.next_xid : server.seq;
        return answer_in_words(question, value, plan) + ", and finds nothing";
    }
    std::string words = answer_in_words(before.pending, after.answers[before.answered], plan);
    if (after.phase == Phase::ending && plan.role == Plan::claimer)
        words += after.claimed_count == 0 ? ", and finds nothing"
                                          : ", and makes a batch of" + batch_in_words(after) +
                                                " with cursor " + in_words(after.new_cursor);
    return words;
}

std::string in_words(const Setting& setting, const State& before, const State& after, Step step)
{
    switch (step.action) {
    case Action::go_on:
        return step_in_words(setting.plans[step.who], before.server, before.sessions[step.who],
                             after.sessions[step.who]);
    case Action::commit:
        return "writes its commit record, and flushes it";
    case Action::commit_lazily:
        return "writes its commit record";
    case Action::abort:
        return "rolls back";
    case Action::prepare:
        return "is being prepared";
    case Action::flush:
        return "flushes the WAL";
    case Action::crash:
        return "crashes: the next xid is " + std::to_string(after.server.next_xid) +
               ", the sequence at " + std::to_string(after.server.seq);
    }
    return "";
}

} // namespace

std::vector<std::string> tell(const Setting& setting, const std::vector<Step>& story)
{
    std::vector<std::string> lines;
    State state = first_state(setting);
    for (const Step step : story) {
        const State before = state;
        (void)take(setting, state, step);
        lines.push_back(name_of(setting, step.who) + " " + in_words(setting, before, state, step));
    }
    return lines;
}

const char* name_of(Promise promise)
{
    switch (promise) {
    case Promise::none:
        return "all promises are kept";
    case Promise::nothing_lost:
        return "a committed message is never delivered";
    case Promise::nothing_repeated:
        return "a message is delivered twice";
    case Promise::committed_only:
        return "an uncommitted message is delivered";
    case Promise::durable_only:
        return "a delivered message is lost by a crash";
    case Promise::in_order:
        return "a message overtakes an earlier one of its aggregate";
    case Promise::batches_right:
        return "a batch has other messages than were delivered to its caller";
    case Promise::cursor_right:
        return "has_passed() or known_upto() of the cursor is wrong";
    }
    return "";
}

} // namespace outbox::model
