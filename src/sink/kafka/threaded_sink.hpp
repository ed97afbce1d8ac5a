// Lets a sink work in a thread of its own: it writes records and hears what came of others while
// the relay reads the log. Only the relay's side of it is called from outside; the sink itself is
// the thread's, but for stream_of() and is_broken().
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

    int descriptor() const override { return news_.descriptor(); }
    std::optional<TimePoint> next_work() const override { return std::nullopt; }
    std::vector<std::string> metadata() const override { return metadata_; }
    std::size_t capacity() const override { return capacity_; }
    std::size_t max_events_per_request() const override { return 1; }
    bool preserves_order() const override { return keeps_order_; }
    StreamId stream_of(const Event& event) const override { return sink_->stream_of(event); }
    std::optional<Outcome> send(RequestId parcel, std::span<const Event* const> events,
                                StreamId stream) override;
    void start() override;
    void work(std::vector<Outcome>& outcomes) override;
    void abandon() override;
    std::string status_message() const override;
    std::vector<std::string> take_log_lines() override;
    bool is_broken() const override { return sink_->is_broken(); }

private:
    struct Order {
        RequestId parcel;
        const Event* event;
        StreamId stream;
    };

    // What the thread is asked beside sending.
    enum class Wish { none, abandon, end };

    void run() noexcept;
    bool take_orders();
    void carry_out();
    void tell();
    void rest() const;

    const std::unique_ptr<Sink> sink_;
    const std::vector<std::string> metadata_;
    const std::size_t capacity_;
    const bool keeps_order_;
    EventFd news_;  // for the relay
    EventFd calls_; // for the thread

    std::vector<Order> collected_; // the relay's: not yet passed on

    // The thread's.
    std::vector<Order> taken_;
    std::size_t carried_out_ = 0; // of these
    std::vector<Outcome> heard_;

    // Both use these, with the mutex.
    mutable std::mutex mutex_;
    std::condition_variable answered_;
    Wish wish_ = Wish::none;
    std::vector<Order> orders_;
    std::vector<Outcome> outcomes_;
    std::string complaint_;
    std::vector<std::string> remarks_;
    bool has_ended_ = false; // the thread
    std::exception_ptr failure_;

    std::thread thread_; // last: it uses all of the above
};

} // namespace outbox::sink
