#include "relay/relay.hpp"

#include "core/error.hpp"
#include "extension/guc.hpp"
#include "extension/worker_transaction.hpp"
#include "ipc/worker_registry.hpp"
#include "pg/server_log.hpp"
#include "relay/listen_notify.hpp"
#include "relay/open_sink.hpp"
#include "relay/scheduled_release.hpp"
#include "relay/sink_task.hpp"
#include "relay/test_sink.hpp"
#include "relay/wait_set.hpp"
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

// Time for requests in flight to complete at shutdown. Workers must end within a second.
constexpr milliseconds drain_timeout{100};

// Bundles commits into one NOTIFY per interval.
constexpr milliseconds min_notify_interval{20};

constexpr milliseconds pause_after_error{1000}; // the next attempt is as likely to fail

class Relay {
public:
    explicit Relay(int slot) : slot_(slot) {}

    void run();

private:
    bool should_shut_down() const;
    // Takes the wake-up requests of the worker slot, and wakes the tasks and timers they name.
    void take_requests();

    // Reads the sinks in a transaction and updates the tasks. After an error tries again later, or
    // sets extension_is_gone_.
    void reload_sinks();
    // Publishes the wanted event types, closes tasks whose definition is gone, opens new ones.
    void update_sink_tasks(std::vector<SinkDefinition>& wanted);
    // Adds a task. Pauses the sink if its config is wrong; tries again later without resources.
    void open_sink_task(const SinkDefinition& definition);
    // Releases the batches of a task and destroys it.
    void close_sink_task(std::size_t index);
    void log_and_pause(const SinkDefinition& definition, const std::string& reason);
    // Closes and pauses the sinks whose endpoint said that it is gone (HTTP 410).
    void pause_gone_sinks();
    std::size_t memory_per_sink() const;

    // Moves due scheduled events into the log, and wakes all tasks if there were any.
    void release_scheduled();
    void notify();
    // Polls the test that is running, else starts the requested one.
    void test_sink();
    void start_test(const SinkTestRequest& request);

    TimePoint next_run_at() const;
    // Sleeps until next_run_at() or a wake-up, then applies a reload of the configuration.
    void wait();
    void open_wait_set();
    void reload_configuration();

    std::vector<std::unique_ptr<SinkTask>> take_aborted_tasks();
    void abandon_aborted_tasks();
    static void drain_in_flight(std::span<const std::unique_ptr<SinkTask>> tasks);
    // Closes all tasks, clears their statuses, and writes the reason into the worker slot.
    void shut_down();

    int slot_;
    MemoryContext loop_context_ = CurrentMemoryContext; // current between transactions
    std::string database_;
    std::vector<std::unique_ptr<SinkTask>> sink_tasks_;
    bool sinks_changed_ = true;
    TimePoint next_reload_{};
    ScheduledRelease scheduled_release_;
    TimePoint next_notify_ = TimePoint::max();
    TimePoint last_notify_{};
    bool extension_is_gone_ = false;
    bool test_requested_ = false; // by outbox_test_sink()
    std::unique_ptr<SinkTest> test_;
    WaitSet wait_set_;
};

void Relay::run()
{
    clear_sink_statuses();
    while (!should_shut_down()) {
        take_requests();
        if (sinks_changed_)
            reload_sinks();
        if (extension_is_gone_)
            break;
        release_scheduled();
        notify();
        test_sink();
        for (const auto& task : sink_tasks_)
            task->run_once(memory_per_sink());
        pause_gone_sinks();
        wait();
    }
    if (sink::library_aborted())
        abandon_aborted_tasks();
    shut_down();
}

bool Relay::should_shut_down() const
{
    return ShutdownRequestPending || sink::library_aborted() || extension_is_gone_ ||
           ipc::are_workers_blocked(MyDatabaseId) ||
           !is_database_served(database_.empty() ? nullptr : database_.c_str());
}

void Relay::take_requests()
{
    const ipc::WakeupRequests requests = ipc::take_wakeup_requests(slot_);
    for (const auto& task : sink_tasks_)
        if (task->definition().types.intersects(requests.types))
            task->wake();
    if (!settings::notify)
        next_notify_ = TimePoint::max();
    else if (requests.types.intersects(EventTypeBloom::all()))
        next_notify_ = std::min(next_notify_, last_notify_ + min_notify_interval);
    scheduled_release_.handle_requests(requests.reasons);
    test_requested_ = test_requested_ || (requests.reasons & ipc::reason_sink_test) != 0;
    if ((requests.reasons & ipc::reason_sinks_changed) != 0)
        for (const auto& task : sink_tasks_)
            task->invalidate_cache();
    if ((requests.reasons & ipc::reason_sinks_changed) != 0 || Clock::now() >= next_reload_)
        sinks_changed_ = true;
}

// ---- sinks

void Relay::reload_sinks()
{
    std::vector<SinkDefinition> wanted;
    const char* name = nullptr;
    const auto rollback = in_transaction("relay: loads the sinks", [&] {
        load_sinks(wanted);
        name = MemoryContextStrdup(TopMemoryContext, get_database_name(MyDatabaseId));
    });
    next_reload_ = Clock::now() + milliseconds(settings::relay_interval);
    sinks_changed_ = false;
    if (rollback) {
        extension_is_gone_ = !is_extension_installed();
        if (!extension_is_gone_) {
            next_reload_ = Clock::now() + pause_after_error;
            pg::log_rate_limited(WARNING, "could not read the sinks: " + rollback->message);
        }
        return;
    }
    ipc::mark_extension_present(slot_);
    database_ = name;
    pfree(const_cast<char*>(name));
    update_sink_tasks(wanted);
}

void Relay::update_sink_tasks(std::vector<SinkDefinition>& wanted)
{
    // Before the tasks read the log: every commit from now on wakes this process, so a commit that
    // their snapshots miss is not lost.
    EventTypeBloom types = settings::notify ? EventTypeBloom::all() : EventTypeBloom{};
    for (const SinkDefinition& definition : wanted)
        types.add(definition.types);
    ipc::set_wanted_event_types(slot_, types);

    for (std::size_t i = sink_tasks_.size(); i-- > 0;) {
        const auto same = std::ranges::find_if(wanted, [&](const SinkDefinition& definition) {
            return definition.equals_except_types(sink_tasks_[i]->definition());
        });
        if (same == wanted.end()) {
            drain_in_flight({&sink_tasks_[i], 1});
            close_sink_task(i);
        } else {
            sink_tasks_[i]->set_types(same->types);
            wanted.erase(same);
        }
    }
    for (const SinkDefinition& definition : wanted)
        open_sink_task(definition);
    for (const auto& task : sink_tasks_)
        task->invalidate_cache();
}

void Relay::open_sink_task(const SinkDefinition& definition)
{
    std::string config_error, resource_error;
    try {
        sink_tasks_.push_back(
            std::make_unique<SinkTask>(definition, open_sink(definition, database_)));
    } catch (const Error& error) {
        config_error = error_text(error);
    } catch (const std::exception& error) {
        resource_error = error_text(error);
    }
    wait_set_.close();
    if (!config_error.empty())
        log_and_pause(definition, config_error);
    // Memory, a thread or a descriptor is missing: no fault of the sink, so it is not paused.
    if (!resource_error.empty()) {
        pg::log_rate_limited(WARNING, "sink \"" + definition.name +
                                          "\" cannot be opened: " + resource_error);
        next_reload_ = Clock::now() + pause_after_error;
    }
}

void Relay::close_sink_task(std::size_t index)
{
    wait_set_.close();
    sink_tasks_[index]->close();
    sink_tasks_.erase(sink_tasks_.begin() + static_cast<std::ptrdiff_t>(index));
}

// Logs a sink that cannot work, and pauses it in a transaction of its own, until outbox_resume().
void Relay::log_and_pause(const SinkDefinition& definition, const std::string& reason)
{
    pg::log_rate_limited(WARNING, "sink \"" + definition.name + "\" is paused: " + reason,
                         "Correct the cause, then call outbox_resume().");
    const auto rollback =
        in_transaction("relay: pauses a sink", [&] { pause_sink(definition.consumer, reason); });
    if (rollback)
        pg::log_rate_limited(WARNING, "sink \"" + definition.name + "\": " + rollback->message);
}

void Relay::pause_gone_sinks()
{
    for (std::size_t i = sink_tasks_.size(); i-- > 0;) {
        if (!sink_tasks_[i]->pause_reason())
            continue;
        const SinkDefinition definition = sink_tasks_[i]->definition();
        const std::string reason = *sink_tasks_[i]->pause_reason();
        close_sink_task(i);
        log_and_pause(definition, reason);
    }
}

std::size_t Relay::memory_per_sink() const
{
    constexpr std::size_t kilobyte = 1024;
    return static_cast<std::size_t>(settings::relay_memory) * kilobyte /
           std::max<std::size_t>(sink_tasks_.size(), 1);
}

// ---- scheduled events

void Relay::release_scheduled()
{
    if (!scheduled_release_.run_once())
        return;
    for (const auto& task : sink_tasks_)
        task->wake();
    if (settings::notify)
        next_notify_ = Clock::now();
}

// ---- outbox.notify

// Sends NOTIFY when it is due, once for all commits of an interval.
void Relay::notify()
{
    const TimePoint now = Clock::now();
    if (now < next_notify_)
        return;
    long next = 0;
    const auto rollback = in_transaction("relay: notifies", [&] { next = notify_listeners(); });
    if (rollback)
        pg::log_rate_limited(WARNING, "could not notify consumers: " + rollback->message);
    last_notify_ = now;
    const long interval = settings::relay_interval;
    next_notify_ = now + milliseconds(rollback ? interval
                                               : std::clamp<long>(next, min_notify_interval.count(),
                                                                  interval));
}

// ---- outbox_test_sink()

void Relay::test_sink()
{
    if (test_) {
        if (!test_->poll())
            return;
        wait_set_.close();
        test_.reset();
    }
    if (test_requested_) {
        test_requested_ = false;
        if (const auto request = SinkTest::pending_request())
            start_test(*request);
    }
}

// Opens a second instance of the sink, so that a paused or failing sink can be tested, too.
// Responds with the error if that fails.
void Relay::start_test(const SinkTestRequest& request)
{
    std::vector<SinkDefinition> sinks;
    const auto rollback =
        in_transaction("relay: tests a sink", [&] { load_sinks(sinks, request.consumer); });
    std::string problem = rollback ? rollback->message : sinks.empty() ? "the sink is gone" : "";
    try {
        if (problem.empty())
            test_ = std::make_unique<SinkTest>(request, open_sink(sinks.front(), database_));
    } catch (const std::exception& error) {
        problem = error_text(error);
    }
    wait_set_.close();
    if (!problem.empty())
        SinkTest::respond(request, false, problem);
}

// ---- waiting

TimePoint Relay::next_run_at() const
{
    TimePoint next = std::min({next_reload_, scheduled_release_.next_run_at(), next_notify_});
    for (const auto& task : sink_tasks_)
        next = std::min(next, task->next_run_at());
    if (test_)
        next = std::min(next, test_->next_poll_at().value_or(next));
    return next;
}

void Relay::open_wait_set()
{
    std::vector<int> sockets;
    for (const auto& task : sink_tasks_)
        sockets.push_back(task->wait_fd());
    if (test_)
        sockets.push_back(test_->wait_fd());
    pg::guarded_call([&] { wait_set_.open(sockets); });
}

void Relay::wait()
{
    if (!wait_set_.is_open())
        open_wait_set();
    const auto left = std::chrono::ceil<milliseconds>(next_run_at() - Clock::now());
    const long timeout = std::clamp<long>(left.count(), 0, settings::relay_interval);
    pg::guarded_call([&] {
        wait_set_.wait(timeout);
        CHECK_FOR_INTERRUPTS();
        (void)pgstat_report_stat(false);
        MemoryContextSwitchTo(loop_context_);
        MemoryContextReset(loop_context_); // frees ErrorData of failed transactions
    });
    if (ConfigReloadPending)
        reload_configuration();
}

// Reads the configuration and opens all sinks again: the secrets file may have changed, too.
void Relay::reload_configuration()
{
    ConfigReloadPending = false;
    pg::guarded_call([] {
        ProcessConfigFile(PGC_SIGHUP);
        set_worker_gucs();
    });
    drain_in_flight(sink_tasks_);
    while (!sink_tasks_.empty())
        close_sink_task(sink_tasks_.size() - 1);
    sinks_changed_ = true;
    scheduled_release_.wake();
}

// ---- shutdown

// Makes these tasks send nothing more, and waits up to drain_timeout for their requests in flight.
void Relay::drain_in_flight(std::span<const std::unique_ptr<SinkTask>> tasks)
{
    const TimePoint end = Clock::now() + drain_timeout;
    for (const auto& task : tasks)
        task->stop_sending();
    const auto is_drained = [](const auto& task) { return task->is_drained(); };
    while (!std::ranges::all_of(tasks, is_drained) && Clock::now() < end) {
        pg_usleep(1000);
        for (const auto& task : tasks)
            task->poll();
    }
}

// Removes and returns the tasks whose librdkafka thread has aborted; all Kafka tasks if the thread
// belongs to no known sink.
std::vector<std::unique_ptr<SinkTask>> Relay::take_aborted_tasks()
{
    const auto has_aborted = [](const auto& task) { return task->has_aborted(); };
    const auto uses_library = [](const auto& task) { return task->definition().kind == "kafka"; };
    const bool is_known =
        std::ranges::any_of(sink_tasks_, has_aborted) || (test_ && test_->has_aborted());
    const auto aborted =
        is_known ? std::ranges::stable_partition(sink_tasks_, std::not_fn(has_aborted))
                 : std::ranges::stable_partition(sink_tasks_, std::not_fn(uses_library));
    std::vector<std::unique_ptr<SinkTask>> taken(std::make_move_iterator(aborted.begin()),
                                                 std::make_move_iterator(aborted.end()));
    sink_tasks_.erase(aborted.begin(), aborted.end());
    return taken;
}

// A thread of librdkafka has aborted and may hold locks: its sinks are neither called nor destroyed
// any more (release() leaks them on purpose). The next relay takes over their open batches.
void Relay::abandon_aborted_tasks()
{
    const std::string reason =
        "librdkafka has failed, possibly because of a broker's response: see "
        "its last messages in the server log";
    std::vector<std::unique_ptr<SinkTask>> aborted = take_aborted_tasks();
    if (test_)
        SinkTest::respond(
            test_->request(), false,
            test_->has_aborted() || sink::library_aborted_unattributed()
                ? reason
                : "the relay restarts, because librdkafka has failed in another sink");
    const auto caused_abort = [&](const auto& task) {
        return task->has_aborted() || (sink::library_aborted_unattributed() && aborted.size() == 1);
    };
    for (const auto& task : aborted)
        if (caused_abort(task))
            log_and_pause(task->definition(), reason);
    // No sink can be named: the relay restarts, and the launcher waits longer each time.
    if (std::ranges::none_of(aborted, caused_abort))
        pg::log_rate_limited(WARNING, reason);
    for (auto& task : aborted)
        (void)task.release();
    (void)test_.release();
}

void Relay::shut_down()
{
    drain_in_flight(sink_tasks_);
    while (!sink_tasks_.empty())
        close_sink_task(sink_tasks_.size() - 1);
    clear_sink_statuses();
    if (sink::library_aborted())
        return; // the absence stays `none`, which the launcher takes for a failure
    if (extension_is_gone_)
        ipc::set_absence(slot_, ipc::WorkerAbsence::no_extension);
    else if (ipc::are_workers_blocked(MyDatabaseId))
        ipc::set_absence(slot_, ipc::WorkerAbsence::stopped_for_command);
    else
        ipc::set_absence(slot_, ipc::WorkerAbsence::terminated);
}

} // namespace

void run_relay(int slot)
{
    // Never destroyed: if an exception ends run(), no destructor may call a sink in an unknown
    // state.
    auto* relay = new Relay(slot);
    relay->run();
}

} // namespace outbox
