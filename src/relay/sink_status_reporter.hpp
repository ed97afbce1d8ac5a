// Reports the state of a sink to operators: in the server log and in shared memory (SinkStatus).
#pragma once

#include "relay/sink_status_shmem.hpp"
#include "sink/dispatch/dispatcher.hpp"

namespace outbox {

// Remembers what it has published of one sink.
class SinkStatusReporter {
public:
    SinkStatusReporter(int32 consumer, std::optional<int64> tenant, std::string name)
        : consumer_(consumer), tenant_(tenant), name_(std::move(name))
    {}

    // Logs lines of the sink's library and changes between failing and working, and writes changes
    // of the state to shared memory; both at a limited rate. `transaction_error` is an error of the
    // task's last transaction, as opposed to one of the endpoint; empty: none.
    void publish(sink::Dispatcher& dispatcher, const std::string& transaction_error,
                 sink::TimePoint now);

    // Returns when publish() must be called even if no wake-up arrives.
    sink::TimePoint next_publish_at() const { return publish_at_; }

private:
    // Takes the library's lines from the dispatcher. Logs up to 5 in 10 s, then their number.
    void log_library_lines(sink::Dispatcher& dispatcher, sink::TimePoint now);
    // Logs that the sink has begun to fail, or works again.
    void log_status_change(bool is_failing, const std::string& status_message);

    int32 consumer_;
    std::optional<int64> tenant_;
    std::string name_;
    bool is_failing_ = false;
    int lines_left_ = 0; // lines that may be logged until next_log_interval_at_
    sink::TimePoint next_log_interval_at_{};
    int lines_dropped_ = 0;
    SinkStatus published_ = {};
    sink::TimePoint publish_at_ = never;

    static constexpr sink::TimePoint never = sink::TimePoint::max();
};

} // namespace outbox
