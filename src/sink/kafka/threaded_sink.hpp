// Runs a sink in a thread of its own, so that it writes records and reads delivery reports while
// the relay's thread reads the log. The relay calls the functions of ThreadedSink; only the thread
// calls the wrapped sink, except for stream_of() and has_aborted().
#pragma once

#include "sink/interface/sink.hpp"
#include "sink/util/event_fd.hpp"

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

namespace outbox::sink {

// Returns true while the process has a thread of a ThreadedSink. The process must then leave by
// _exit(), because the thread may use what exit() destroys.
bool has_sink_threads() noexcept;

// A sink with a thread. Requests and results are exchanged under a mutex, in groups.
class ThreadedSink final : public Sink {
public:
    // Starts the thread, with all signals blocked. The sink must have one event per request. Raises
    // std::system_error if no thread can be started.
    explicit ThreadedSink(std::unique_ptr<Sink> sink);

    // Waits until the thread has ended.
    ~ThreadedSink() override;

    // Functions of Sink, for the relay's thread. send() keeps a request until flush() or until 256
    // have come. poll() raises the exception that ended the thread. cancel_all() waits for the
    // thread. stream_of() and has_aborted() call the wrapped sink without the mutex.
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
    // Arguments of a send() for the thread.
    struct QueuedSend {
        RequestId request_id;
        const Event* event;
        StreamId stream;
    };

    // Command of the relay to the thread, besides the requests.
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
    EventFd results_event_; // wakes the relay
    EventFd wakeup_event_;  // wakes the thread

    // Used by the relay's thread only.
    std::vector<QueuedSend> unsubmitted_; // until flush()

    // Used by the sink's thread only.
    std::vector<QueuedSend> sending_;
    std::size_t sent_count_ = 0; // how many of sending_ were passed to the sink
    std::vector<DeliveryResult> thread_results_;

    // Used by both threads, under the mutex.
    mutable std::mutex mutex_;
    std::condition_variable command_done_;
    Command command_ = Command::none;
    std::vector<QueuedSend> submitted_;
    std::vector<DeliveryResult> results_;
    std::string status_message_;
    std::vector<std::string> log_lines_;
    bool thread_ended_ = false;
    std::exception_ptr thread_exception_; // ended the thread; poll() raises it in the relay

    std::thread thread_; // last member, because the thread uses all others
};

} // namespace outbox::sink
