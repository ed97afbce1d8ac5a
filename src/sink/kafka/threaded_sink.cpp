#include "sink/kafka/threaded_sink.hpp"

#include "sink/util/block_signals.hpp"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

namespace outbox::sink {

namespace {

using std::chrono::milliseconds;

std::atomic<int> thread_count{0};

// Requests that are submitted, or passed to the sink, at a time. Small, so that relay and thread
// work concurrently.
constexpr std::size_t requests_per_round = 256;

// Lines that are kept until take_log_lines(); further lines are dropped.
constexpr std::size_t max_log_lines = 20;

// Moves all items of `source` to the end of `target`; `source` is empty afterwards.
template <typename Item>
void append_moved(std::vector<Item>& target, std::vector<Item>& source)
{
    if (target.empty())
        target.swap(source);
    else
        target.insert(target.end(), std::make_move_iterator(source.begin()),
                      std::make_move_iterator(source.end()));
    source.clear();
}

} // namespace

bool has_sink_threads() noexcept
{
    return thread_count.load() > 0;
}

ThreadedSink::ThreadedSink(std::unique_ptr<Sink> sink)
    : sink_(std::move(sink)), metadata_keys_(sink_->metadata_keys()),
      max_in_flight_(sink_->max_in_flight()), preserves_order_(sink_->preserves_order())
{
    const SignalsBlocked signals_blocked;
    thread_ = std::thread([this] { run(); });
    ++thread_count;
}

ThreadedSink::~ThreadedSink()
{
    {
        const std::lock_guard lock(mutex_);
        command_ = Command::stop;
    }
    wakeup_event_.notify();
    thread_.join();
    --thread_count;
}

// ---- the relay's side

std::optional<DeliveryResult>
ThreadedSink::send(RequestId request_id, std::span<const Event* const> events, StreamId stream)
{
    unsubmitted_.push_back({request_id, events.front(), stream});
    if (unsubmitted_.size() >= requests_per_round)
        flush();
    return std::nullopt;
}

void ThreadedSink::flush()
{
    if (unsubmitted_.empty())
        return;
    bool is_first;
    {
        const std::lock_guard lock(mutex_);
        is_first = submitted_.empty();
        append_moved(submitted_, unsubmitted_);
    }
    // If submitted_ was not empty, the thread is notified already.
    if (is_first)
        wakeup_event_.notify();
}

void ThreadedSink::poll(std::vector<DeliveryResult>& results)
{
    results_event_.drain();
    const std::lock_guard lock(mutex_);
    if (thread_exception_)
        std::rethrow_exception(thread_exception_);
    append_moved(results, results_);
}

// Waits until the thread has dropped its pointers to events, because the caller may free them.
void ThreadedSink::cancel_all()
{
    unsubmitted_.clear();
    std::unique_lock lock(mutex_);
    command_ = Command::cancel_all;
    wakeup_event_.notify();
    command_done_.wait(lock, [this] { return command_ == Command::none || thread_ended_; });
}

std::string ThreadedSink::status_message() const
{
    const std::lock_guard lock(mutex_);
    return status_message_;
}

std::vector<std::string> ThreadedSink::take_log_lines()
{
    const std::lock_guard lock(mutex_);
    return std::exchange(log_lines_, {});
}

// ---- the thread's side

// Main function of the thread. An exception ends the thread; poll() raises it in the relay.
void ThreadedSink::run() noexcept
{
    std::exception_ptr exception;
    try {
        while (take_commands()) {
            send_queued();
            publish_results();
            wait_for_work();
        }
    } catch (...) {
        exception = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    thread_ended_ = true;
    thread_exception_ = exception;
    command_done_.notify_all();
    results_event_.notify();
}

// Runs the command cancel_all under the mutex, and takes the submitted requests when all earlier
// ones were passed on. Returns false if the thread must end.
bool ThreadedSink::take_commands()
{
    wakeup_event_.drain();
    const std::lock_guard lock(mutex_);
    if (command_ == Command::cancel_all) {
        submitted_.clear();
        results_.clear();
        sending_.clear();
        sent_count_ = 0;
        thread_results_.clear();
        sink_->cancel_all();
        status_message_.clear();
        command_ = Command::none;
        command_done_.notify_all();
    }
    if (sent_count_ == sending_.size()) {
        sending_.clear();
        sent_count_ = 0;
        sending_.swap(submitted_);
    }
    return command_ != Command::stop;
}

// Passes up to requests_per_round requests to the sink while it can send, then flushes and polls
// it.
void ThreadedSink::send_queued()
{
    const std::size_t end = std::min(sending_.size(), sent_count_ + requests_per_round);
    while (sent_count_ < end && sink_->can_send()) {
        const QueuedSend& queued = sending_[sent_count_++];
        const Event* events[] = {queued.event};
        if (auto result = sink_->send(queued.request_id, events, queued.stream))
            thread_results_.push_back(std::move(*result));
    }
    sink_->flush();
    sink_->poll(thread_results_);
}

// Passes results, log lines and the status message to the relay, under the mutex. Notifies the
// relay if there is news; log lines above max_log_lines are dropped.
void ThreadedSink::publish_results()
{
    std::string status_message = sink_->status_message();
    bool is_new;
    {
        const std::lock_guard lock(mutex_);
        is_new =
            (results_.empty() && !thread_results_.empty()) || status_message != status_message_;
        append_moved(results_, thread_results_);
        status_message_.swap(status_message);
        for (std::string& line : sink_->take_log_lines()) {
            if (log_lines_.size() == max_log_lines)
                break;
            log_lines_.push_back(std::move(line));
            is_new = true;
        }
    }
    if (is_new)
        results_event_.notify();
}

// Blocks until the relay wakes the thread, the sink's wait_fd() is readable or its next_poll_at()
// has come, for which it waits up to 60 s. Returns at once if requests can be sent.
void ThreadedSink::wait_for_work() const
{
    // Requests of sending_ remain, or submitted_ may have more.
    if (!sending_.empty() && sink_->can_send())
        return;
    int timeout = -1;
    if (const auto next = sink_->next_poll_at())
        timeout = static_cast<int>(std::clamp<std::int64_t>(
            std::chrono::ceil<milliseconds>(*next - Clock::now()).count(), 0, 60'000));
    pollfd descriptors[] = {{wakeup_event_.fd(), POLLIN, 0}, {sink_->wait_fd(), POLLIN, 0}};
    (void)::poll(descriptors, std::size(descriptors), timeout);
}

} // namespace outbox::sink
