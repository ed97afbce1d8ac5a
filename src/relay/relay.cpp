#include "relay/relay.hpp"

#include "core/error.hpp"
#include "extension/guc.hpp"
#include "extension/worker_transaction.hpp"
#include "ipc/worker_registry.hpp"
#include "pg/server_log.hpp"
#include "relay/listen_notify.hpp"
#include "relay/scheduled_release.hpp"
#include "relay/sink_task.hpp"
#include "relay/test_sink.hpp"
#include "sink/config/sink_context.hpp"
#include "sink/util/abort_trap.hpp"

extern "C" {
#include "commands/dbcommands.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
}

#include <algorithm>
#include <functional>
#include <iterator>

namespace outbox {

namespace {

using sink::Clock;
using sink::TimePoint;
using std::chrono::milliseconds;

// How long requests on the way may take to arrive when the worker is asked to leave.
constexpr milliseconds drain_timeout{100};

// NOTIFY comes no more often than this.
constexpr milliseconds between_notifies{20};

constexpr milliseconds pause_after_error{1000};

sink::Secrets load_secrets()
{
    if (*settings::secrets_file == '\0')
        throw Error("F0000", "outbox.secrets_file is not set", {},
                    "It names the file with the secrets that sinks refer to.");
    return sink::Secrets::load(settings::secrets_file);
}

// What went wrong, for people: with the hint, if there is one.
std::string text_of(const std::exception& error)
{
    std::string text = error.what();
    if (const auto* ours = dynamic_cast<const Error*>(&error))
        text += ours->hint().empty() ? "" : " (" + ours->hint() + ")";
    return text;
}

class Relay {
public:
    explicit Relay(int post) : post_(post) {}

    void run();

private:
    bool is_to_leave() const;
    void take_requests();

    void reload();
    void adjust_routes(std::vector<SinkDefinition>& wanted);
    void open_route(const SinkDefinition& definition);
    void close_route(std::size_t index);
    void pause(const SinkDefinition& definition, const std::string& reason);
    void pause_ended();
    std::unique_ptr<sink::Sink> make_sink(const SinkDefinition& definition) const;
    sink::SinkContext sink_context() const;
    std::size_t share() const;

    void release_scheduled();
    void notify();
    void test_sink();
    void begin_test(const TestQuestion& question);

    TimePoint next_turn() const;
    void wait();
    void make_wait_set();
    void forget_wait_set();
    void read_configuration();

    std::vector<std::unique_ptr<SinkTask>> take_aborted_tasks();
    void abandon_aborted_tasks();
    static void drain_in_flight(std::span<const std::unique_ptr<SinkTask>> routes);
    void leave();

    int post_;
    MemoryContext memory_ = CurrentMemoryContext; // of the loop, between its transactions
    std::string database_;
    std::vector<std::unique_ptr<SinkTask>> routes_;
    bool sinks_changed_ = true;
    TimePoint next_reload_{};
    ScheduledRelease releaser_;
    TimePoint next_notify_ = TimePoint::max();
    TimePoint last_notify_{};
    bool extension_is_gone_ = false;
    bool is_asked_ = false; // to test a sink
    std::unique_ptr<SinkTest> test_;
    WaitEventSet* wait_set_ = nullptr;
    pg::NamedWait wait_{"OutboxRelay"};
};

void Relay::run()
{
    clear_sink_statuses();
    while (!is_to_leave()) {
        take_requests();
        if (sinks_changed_)
            reload();
        if (extension_is_gone_)
            break;
        release_scheduled();
        notify();
        test_sink();
        for (const auto& route : routes_)
            route->turn(share());
        pause_ended();
        wait();
    }
    if (sink::library_aborted())
        abandon_aborted_tasks();
    leave();
}

bool Relay::is_to_leave() const
{
    return ShutdownRequestPending || sink::library_aborted() || extension_is_gone_ ||
           pg::are_workers_blocked(MyDatabaseId) ||
           !is_served(database_.empty() ? nullptr : database_.c_str());
}

void Relay::take_requests()
{
    const pg::WakeupRequests calls = pg::take_wakeup_requests(post_);
    for (const auto& route : routes_)
        if (route->definition().types.meets(calls.types))
            route->look();
    if (!settings::notify)
        next_notify_ = TimePoint::max();
    else if (calls.types.meets(TypeSet::all()))
        next_notify_ = std::min(next_notify_, last_notify_ + between_notifies);
    releaser_.hear(calls.tasks);
    is_asked_ = is_asked_ || (calls.tasks & pg::task_test) != 0;
    if ((calls.tasks & pg::task_sinks) != 0)
        for (const auto& route : routes_)
            route->invalidate_cache();
    if ((calls.tasks & pg::task_sinks) != 0 || Clock::now() >= next_reload_)
        sinks_changed_ = true;
}

// ---- sinks

// What the sinks of the database have in common, as the settings say now.
sink::SinkContext Relay::sink_context() const
{
    sink::SinkContext around;
    around.source = *settings::source != '\0' ? settings::source : "/" + database_;
    around.allowed_hosts = sink::AllowedHosts(settings::http_allowed_hosts);
    around.deny_private = settings::http_deny_private;
    return around;
}

std::unique_ptr<sink::Sink> Relay::make_sink(const SinkDefinition& definition) const
{
    return sink::make_sink(definition.kind, definition.config, load_secrets, sink_context());
}

void Relay::reload()
{
    std::vector<SinkDefinition> wanted;
    const char* name = nullptr;
    const auto rollback = pg::in_transaction("relay: which sinks are there?", [&] {
        load_sinks(wanted);
        name = MemoryContextStrdup(TopMemoryContext, get_database_name(MyDatabaseId));
    });
    next_reload_ = Clock::now() + milliseconds(settings::relay_interval);
    sinks_changed_ = false;
    if (rollback) {
        extension_is_gone_ = !pg::is_installed();
        if (!extension_is_gone_) {
            next_reload_ = Clock::now() + pause_after_error;
            pg::log_line(WARNING, "the sinks cannot be read: " + rollback->message);
        }
        return;
    }
    pg::begin_service(post_);
    database_ = name;
    pfree(const_cast<char*>(name));
    adjust_routes(wanted);
}

void Relay::adjust_routes(std::vector<SinkDefinition>& wanted)
{
    // Before anybody looks: what is committed from now on wakes this worker.
    TypeSet types = settings::notify ? TypeSet::all() : TypeSet{};
    for (const SinkDefinition& definition : wanted)
        types.add(definition.types);
    pg::set_wanted_event_types(post_, types);

    for (std::size_t i = routes_.size(); i-- > 0;) {
        const auto same = std::ranges::find_if(wanted, [&](const SinkDefinition& definition) {
            return definition.makes_same_route(routes_[i]->definition());
        });
        if (same == wanted.end()) {
            drain_in_flight({&routes_[i], 1});
            close_route(i);
        } else {
            routes_[i]->set_types(same->types);
            wanted.erase(same);
        }
    }
    for (const SinkDefinition& definition : wanted)
        open_route(definition);
    for (const auto& route : routes_)
        route->invalidate_cache();
}

void Relay::open_route(const SinkDefinition& definition)
{
    std::string problem, shortage;
    try {
        routes_.push_back(std::make_unique<SinkTask>(definition, make_sink(definition)));
    } catch (const Error& error) {
        problem = text_of(error);
    } catch (const std::exception& error) {
        shortage = text_of(error);
    }
    forget_wait_set();
    if (!problem.empty())
        pause(definition, problem);
    // No memory, no thread, no descriptor: that is nothing about this sink, and passes.
    if (!shortage.empty()) {
        pg::log_line(WARNING, "sink \"" + definition.name + "\" cannot be opened: " + shortage);
        next_reload_ = Clock::now() + pause_after_error;
    }
}

void Relay::close_route(std::size_t index)
{
    forget_wait_set();
    routes_[index]->close();
    routes_.erase(routes_.begin() + static_cast<std::ptrdiff_t>(index));
}

// A sink that cannot work is paused, and stays so until somebody who has mended it resumes it.
void Relay::pause(const SinkDefinition& definition, const std::string& reason)
{
    pg::log_line(WARNING, "sink \"" + definition.name + "\" is paused: " + reason,
                 "Mend it, then call outbox_resume().");
    const auto rollback = pg::in_transaction("relay: pauses a sink",
                                             [&] { pause_sink(definition.consumer, reason); });
    if (rollback)
        pg::log_line(WARNING, "sink \"" + definition.name + "\": " + rollback->message);
}

void Relay::pause_ended()
{
    for (std::size_t i = routes_.size(); i-- > 0;) {
        if (!routes_[i]->end())
            continue;
        const SinkDefinition definition = routes_[i]->definition();
        const std::string reason = *routes_[i]->end();
        close_route(i);
        pause(definition, reason);
    }
}

std::size_t Relay::share() const
{
    constexpr std::size_t kilobyte = 1024;
    return static_cast<std::size_t>(settings::relay_memory) * kilobyte /
           std::max<std::size_t>(routes_.size(), 1);
}

// ---- scheduled events

void Relay::release_scheduled()
{
    if (!releaser_.turn())
        return;
    for (const auto& route : routes_)
        route->look();
    if (settings::notify)
        next_notify_ = Clock::now();
}

// ---- outbox.notify

// Once for all that came within a moment.
void Relay::notify()
{
    const TimePoint now = Clock::now();
    if (now < next_notify_)
        return;
    long next = 0;
    const auto rollback = pg::in_transaction("relay: notifies", [&] { next = notify_listeners(); });
    if (rollback)
        pg::log_line(WARNING, "consumers cannot be notified: " + rollback->message);
    last_notify_ = now;
    const long interval = settings::relay_interval;
    next_notify_ =
        now + milliseconds(rollback ? interval
                                    : std::clamp<long>(next, between_notifies.count(), interval));
}

// ---- outbox_test_sink()

void Relay::test_sink()
{
    if (test_) {
        if (!test_->work())
            return;
        forget_wait_set();
        test_.reset();
    }
    if (is_asked_) {
        is_asked_ = false;
        if (const auto question = SinkTest::question())
            begin_test(*question);
    }
}

// With a sink of its own: also one that is paused or in trouble can be tested.
void Relay::begin_test(const TestQuestion& question)
{
    std::vector<SinkDefinition> sinks;
    const auto rollback =
        pg::in_transaction("relay: tests a sink", [&] { load_sinks(sinks, question.consumer); });
    std::string problem = rollback ? rollback->message : sinks.empty() ? "the sink is gone" : "";
    try {
        if (problem.empty())
            test_ = std::make_unique<SinkTest>(question, make_sink(sinks.front()));
    } catch (const std::exception& error) {
        problem = text_of(error);
    }
    forget_wait_set();
    if (!problem.empty())
        SinkTest::answer(question, false, problem);
}

// ---- waiting

TimePoint Relay::next_turn() const
{
    TimePoint next = std::min({next_reload_, releaser_.next_turn(), next_notify_});
    for (const auto& route : routes_)
        next = std::min(next, route->next_turn());
    if (test_)
        next = std::min(next, test_->next_work().value_or(next));
    return next;
}

void Relay::make_wait_set()
{
    pg::call([&] {
        wait_set_ = pg::create_wait_event_set(static_cast<int>(routes_.size()) + 3);
        AddWaitEventToSet(wait_set_, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, nullptr);
        AddWaitEventToSet(wait_set_, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, nullptr, nullptr);
        for (const auto& route : routes_)
            AddWaitEventToSet(wait_set_, WL_SOCKET_READABLE, route->descriptor(), nullptr, nullptr);
        if (test_)
            AddWaitEventToSet(wait_set_, WL_SOCKET_READABLE, test_->descriptor(), nullptr, nullptr);
    });
}

void Relay::forget_wait_set()
{
    if (wait_set_ != nullptr)
        FreeWaitEventSet(std::exchange(wait_set_, nullptr));
}

void Relay::wait()
{
    if (wait_set_ == nullptr)
        make_wait_set();
    const auto left = std::chrono::ceil<milliseconds>(next_turn() - Clock::now());
    const long timeout = std::clamp<long>(left.count(), 0, settings::relay_interval);
    pg::call([&] {
        WaitEvent event;
        (void)WaitEventSetWait(wait_set_, timeout, &event, 1, wait_.number());
        ResetLatch(MyLatch);
        CHECK_FOR_INTERRUPTS();
        (void)pgstat_report_stat(false);
        MemoryContextSwitchTo(memory_);
        MemoryContextReset(memory_); // what errors have left behind
    });
    if (ConfigReloadPending)
        read_configuration();
}

// Secrets may have changed, too: all routes are opened anew.
void Relay::read_configuration()
{
    ConfigReloadPending = false;
    pg::call([] {
        ProcessConfigFile(PGC_SIGHUP);
        set_worker_gucs();
    });
    drain_in_flight(routes_);
    while (!routes_.empty())
        close_route(routes_.size() - 1);
    sinks_changed_ = true;
    releaser_.look();
}

// ---- the end

// Lets what is on the way arrive, if that does not take long.
void Relay::drain_in_flight(std::span<const std::unique_ptr<SinkTask>> routes)
{
    const TimePoint end = Clock::now() + drain_timeout;
    for (const auto& route : routes)
        route->finish();
    const auto is_quiet = [](const auto& route) { return route->is_quiet(); };
    while (!std::ranges::all_of(routes, is_quiet) && Clock::now() < end) {
        pg_usleep(1000);
        for (const auto& route : routes)
            route->listen();
    }
}

// Routes whose library has failed. If nobody knows in which of its threads, these are all that use
// it.
std::vector<std::unique_ptr<SinkTask>> Relay::take_aborted_tasks()
{
    const auto is_broken = [](const auto& route) { return route->is_broken(); };
    const auto uses_library = [](const auto& route) { return route->definition().kind == "kafka"; };
    const bool is_known = std::ranges::any_of(routes_, is_broken) || (test_ && test_->is_broken());
    const auto broken = is_known
                            ? std::ranges::stable_partition(routes_, std::not_fn(is_broken))
                            : std::ranges::stable_partition(routes_, std::not_fn(uses_library));
    std::vector<std::unique_ptr<SinkTask>> taken(std::make_move_iterator(broken.begin()),
                                                 std::make_move_iterator(broken.end()));
    routes_.erase(broken.begin(), broken.end());
    return taken;
}

// A thread of a library has failed, and others may wait for it for ever: what uses it is not called
// any more, nor closed. The next relay takes over what it has on the way.
void Relay::abandon_aborted_tasks()
{
    const std::string reason = "librdkafka has failed, perhaps over what a broker said: its last "
                               "words are in the server's log";
    std::vector<std::unique_ptr<SinkTask>> broken = take_aborted_tasks();
    if (test_)
        SinkTest::answer(test_->what(), false,
                         test_->is_broken() || sink::library_aborted_unattributed()
                             ? reason
                             : "the relay starts again: the library of another sink has failed");
    const auto is_poison = [&](const auto& route) {
        return route->is_broken() || (sink::library_aborted_unattributed() && broken.size() == 1);
    };
    for (const auto& route : broken)
        if (is_poison(route))
            pause(route->definition(), reason);
    // If nobody can be blamed, the relay starts again, and the launcher waits longer each time.
    if (std::ranges::none_of(broken, is_poison))
        pg::log_line(WARNING, reason);
    for (auto& route : broken)
        (void)route.release();
    (void)test_.release();
}

void Relay::leave()
{
    drain_in_flight(routes_);
    while (!routes_.empty())
        close_route(routes_.size() - 1);
    clear_sink_statuses();
    if (sink::library_aborted())
        return; // a failure, to the launcher
    if (extension_is_gone_)
        pg::set_absence(post_, pg::WorkerAbsence::no_extension);
    else if (pg::are_workers_blocked(MyDatabaseId))
        pg::set_absence(post_, pg::WorkerAbsence::stepped_aside);
    else
        pg::set_absence(post_, pg::WorkerAbsence::on_sigterm);
}

} // namespace

void relay(int post)
{
    // Lives as long as the process: nothing is to run when an error ends it.
    auto* relay = new Relay(post);
    relay->run();
}

} // namespace outbox
