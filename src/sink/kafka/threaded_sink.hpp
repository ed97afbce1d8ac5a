// Lets a sink work in a thread of its own: it writes records and hears what came of others while
// the relay reads the log. Only the relay's side of it is called from outside; the sink itself is
// the thread's, but for stream_of() and has_aborted().
#pragma once

#include "sink/interface/sink.hpp"
#include "sink/util/event_fd.hpp"

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

namespace outbox::sink {

// Is there any thread of these? Then the process must not run what exit() runs.
bool has_sink_threads() noexcept;

class ThreadedSink final : public Sink {
public:
    // For sinks that take one event at a time.
    explicit ThreadedSink(std::unique_ptr<Sink> sink);
    ~ThreadedSink() override;

    int wait_fd() const override { return results_event_.fd(); }
    std::optional<TimePoint> next_poll_at() const override { return std::nullopt; }
    std::vector<std::string> metadata_keys() const override { return metadata_keys_; }
    std::size_t max_in_flight() const override { return max_in_flight_; }
    std::size_t max_events_per_request() const override { return 1; }
    bool preserves_order() const override { return preserves_order_; }
    StreamId stream_of(const Event& event) const override { return sink_->stream_of(event); }
    std::optional<DeliveryResult> send(RequestId request_id, std::span<const Event* const> events,
                                       StreamId stream) override;
    void flush() override;
    void poll(std::vector<DeliveryResult>& results) override;
    void cancel_all() override;
    std::string status_message() const override;
    std::vector<std::string> take_log_lines() override;
    bool has_aborted() const override { return sink_->has_aborted(); }

private:
    struct QueuedSend {
        RequestId request_id;
        const Event* event;
        StreamId stream;
    };

    // What the thread is asked beside sending.
    enum class Command { none, cancel_all, stop };

    void run() noexcept;
    bool take_commands();
    void send_queued();
    void publish_results();
    void wait_for_work() const;

    const std::unique_ptr<Sink> sink_;
    const std::vector<std::string> metadata_keys_;
    const std::size_t max_in_flight_;
    const bool preserves_order_;
    EventFd results_event_; // for the relay
    EventFd wakeup_event_;  // for the thread

    std::vector<QueuedSend> unsubmitted_; // the relay's: not yet passed on

    // The thread's.
    std::vector<QueuedSend> sending_;
    std::size_t sent_count_ = 0; // of these
    std::vector<DeliveryResult> thread_results_;

    // Both use these, with the mutex.
    mutable std::mutex mutex_;
    std::condition_variable command_done_;
    Command command_ = Command::none;
    std::vector<QueuedSend> submitted_;
    std::vector<DeliveryResult> results_;
    std::string status_message_;
    std::vector<std::string> log_lines_;
    bool thread_ended_ = false; // the thread
    std::exception_ptr thread_exception_;

    std::thread thread_; // last: it uses all of the above
};

} // namespace outbox::sink
