// build/model [short]: explores every setting, plants every bug, and prints the results as TAP.
#include "words.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

namespace outbox::model {

namespace {

constexpr Plan writer{.role = Plan::writer, .appends = 1};
constexpr Plan twice{.role = Plan::writer, .appends = 2};
constexpr Plan many{.role = Plan::writer, .appends = 1, .run_length = 2};
constexpr Plan insert{.role = Plan::writer, .appends = 1, .inserts = true};
constexpr Plan locker{.role = Plan::writer, .appends = 1, .locks_row = true};
constexpr Plan locker_twice{.role = Plan::writer, .appends = 2, .locks_row = true};
constexpr Plan claimer{.role = Plan::claimer};
constexpr Plan busy_claimer{.role = Plan::claimer, .appends = 1};

const Setting small_settings[] = {
    {.name = "three writers, two claimers", .plans = {writer, writer, writer, claimer, claimer}},
    {.name = "three writers, pages of two",
     .plans = {writer, writer, writer, claimer, claimer},
     .page = 2,
     .asynchronous = true},
    {.name = "three writers of one aggregate",
     .plans = {locker, locker, locker, claimer, claimer},
     .asynchronous = true},
    {.name = "two writers of two events, two partitions",
     .plans = {many, twice, claimer, claimer},
     .partitions = 2},
    {.name = "two INSERTs, pages of two",
     .plans = {insert, insert, claimer, claimer},
     .page = 2,
     .asynchronous = true},
    {.name = "a writer and a claimer that appends an event",
     .plans = {writer, busy_claimer, claimer},
     .asynchronous = true,
     .knows_consumer = false},
};

const Setting large_settings[] = {
    {.name = "three writers, claimers without cached consumer",
     .plans = {writer, writer, writer, claimer, claimer},
     .asynchronous = true,
     .knows_consumer = false},
    {.name = "three writers, claimers without cached consumer, pages of two",
     .plans = {writer, writer, writer, claimer, claimer},
     .page = 2,
     .asynchronous = true,
     .knows_consumer = false},
    {.name = "one event, two events, two at once",
     .plans = {insert, twice, many, claimer, claimer},
     .asynchronous = true},
    {.name = "one event, two events, two at once, pages of two",
     .plans = {insert, twice, many, claimer, claimer},
     .page = 2,
     .asynchronous = true},
    {.name = "one event, two events, two at once, pages of two, two partitions",
     .plans = {insert, twice, many, claimer, claimer},
     .page = 2,
     .partitions = 2},
    {.name = "three writers of one aggregate, two of them with two events",
     .plans = {locker, locker_twice, locker_twice, claimer, claimer},
     .asynchronous = true},
    {.name = "three writers of one aggregate, two of them with two events, pages of two",
     .plans = {locker, locker_twice, locker_twice, claimer, claimer},
     .page = 2,
     .asynchronous = true},
    {.name = "two writers and a claimer that appends an event",
     .plans = {writer, writer, busy_claimer, claimer},
     .asynchronous = true},
};

// A bug with the smallest setting in which it is found.
struct Planted {
    const char* name;
    Promise broken;
    Setting setting;
};

Planted planted(const char* name, Promise broken, Bug bug, const Setting& where)
{
    Planted planted{name, broken, where};
    planted.setting.bug = bug;
    planted.setting.asks_cursor = broken == Promise::cursor_right;
    planted.setting.prepares = false;
    planted.setting.claims_given_up = 0;
    planted.setting.crash = where.asynchronous;
    return planted;
}

std::vector<Planted> planted_bugs()
{
    const Setting plain{.plans = {writer, writer, claimer, claimer}, .page = 2};
    const Setting two_events{.plans = {twice, writer, writer, claimer, claimer}};
    Setting two_events_on_a_page = two_events;
    two_events_on_a_page.page = 2;
    const Setting aggregate{.plans = {locker, locker, locker, claimer, claimer}};
    const Setting lazy{.plans = {writer, writer, claimer, claimer}, .asynchronous = true};
    Planted doubled = planted("xids that the snapshot lists twice are left out",
                              Promise::nothing_lost, Bug::doubled_left_out, plain);
    doubled.setting.prepares = true;
    return {
        doubled,
        planted("the list of running xids does not extend to the next xid", Promise::nothing_lost,
                Bug::list_not_extended, plain),
        planted("the next xid is read before the sequence", Promise::nothing_lost,
                Bug::next_xid_before_sequence, plain),
        planted("the id is drawn before the xid", Promise::nothing_lost, Bug::id_before_xid, plain),
        planted("cursor and log are read with a snapshot from before the lock",
                Promise::nothing_repeated, Bug::old_snapshot, plain),
        planted("the lock of the consumer is released before the commit", Promise::nothing_repeated,
                Bug::lock_given_up, plain),
        planted("late commits are not merged by id", Promise::nothing_lost,
                Bug::late_commits_not_merged, two_events),
        planted("late commits are not merged by id, pages of two", Promise::batches_right,
                Bug::late_commits_not_merged, two_events_on_a_page),
        planted("late commits come after the new messages", Promise::in_order,
                Bug::late_commits_last, aggregate),
        planted("the position is one too high", Promise::nothing_lost, Bug::position_too_high,
                plain),
        planted("the position is one too high, has_passed() and known_upto() are checked",
                Promise::cursor_right, Bug::position_too_high, plain),
        planted("the position is one too low", Promise::nothing_repeated, Bug::position_too_low,
                plain),
        planted("rows of running and aborted transactions are read", Promise::committed_only,
                Bug::any_row, plain),
        planted("the commit of a claim is not flushed", Promise::durable_only,
                Bug::commit_not_forced, lazy),
    };
}

// Every action that a setting allows must have been taken; otherwise the search did not cover the
// setting.
bool may_happen(const Setting& setting, Action action)
{
    switch (action) {
    case Action::go_on:
    case Action::commit:
        return true;
    case Action::commit_lazily:
        return setting.asynchronous;
    case Action::flush:
        return setting.asynchronous && setting.crash;
    case Action::abort:
        return setting.aborts || setting.claims_given_up > 0;
    case Action::prepare:
        return setting.prepares;
    case Action::crash:
        return setting.crash;
    }
    return false;
}

bool was_every_action_taken(const Setting& setting, const Outcome& outcome)
{
    for (std::size_t i = 0; i < action_count; ++i)
        if ((outcome.taken[i] > 0) != may_happen(setting, static_cast<Action>(i)))
            return false;
    return true;
}

class Report {
public:
    explicit Report(std::size_t count) { std::printf("1..%zu\n", count); }

    void add(const std::string& name, const Setting& setting, Promise expected)
    {
        const auto began = std::chrono::steady_clock::now();
        const Outcome outcome = explore(setting);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
        const bool is_right =
            outcome.broken == expected &&
            (expected != Promise::none || was_every_action_taken(setting, outcome));
        all_right_ = all_right_ && is_right;
        states_ += outcome.states;
        std::printf("%s %d - %s\n", is_right ? "ok" : "not ok", ++number_, name.c_str());
        std::printf("# %s: %zu states, %zu steps, %d deep, %.1f s\n", name_of(outcome.broken),
                    outcome.states, outcome.steps, outcome.depth, took.count());
        for (const std::string& line : tell(setting, outcome.story))
            std::printf("#     %s\n", line.c_str());
        std::fflush(stdout);
    }

    int finish() const
    {
        std::printf("# %zu states in all\n", states_);
        return all_right_ ? 0 : 1;
    }

private:
    int number_ = 0;
    std::size_t states_ = 0;
    bool all_right_ = true;
};

int run(std::span<const Setting> settings, const std::vector<Planted>& bugs)
{
    Report report(settings.size() + bugs.size());
    for (const Setting& setting : settings)
        report.add(std::string("no promise is broken: ") + setting.name, setting, Promise::none);
    for (const Planted& bug : bugs)
        report.add(std::string("planted bug is found: ") + bug.name, bug.setting, bug.broken);
    return report.finish();
}

} // namespace

} // namespace outbox::model

int main(int count, char** arguments)
{
    using namespace outbox::model;
    const bool is_short = count > 1 && std::string_view(arguments[1]) == "short";
    const bool plants = !is_short || std::getenv("OUTBOX_SELFTEST") != nullptr;
    return run(is_short ? std::span<const Setting>(small_settings) : large_settings,
               plants ? planted_bugs() : std::vector<Planted>{});
}
