// What operators see of a sink: lines in the server's log, and its place on the board.
#pragma once

#include "relay/sink_status_shmem.hpp"
#include "sink/dispatch/dispatcher.hpp"

namespace outbox {

class SinkStatusReporter {
public:
    SinkStatusReporter(int32 consumer, std::optional<int64> tenant, std::string name)
        : consumer_(consumer), tenant_(tenant), name_(std::move(name))
    {}

    // Tells what is new, and not too often. `problem` is one of ours, not of the receiver's.
    void publish(sink::Dispatcher& dispatcher, const std::string& transaction_error,
                 sink::TimePoint now);

    // When publish() is to be called even if nothing happens.
    sink::TimePoint next_publish_at() const { return publish_at_; }

private:
    void log_library_lines(sink::Dispatcher& dispatcher, sink::TimePoint now);
    void log_status_change(bool is_failing, const std::string& status_message);

    int32 consumer_;
    std::optional<int64> tenant_;
    std::string name_;
    bool is_failing_ = false;
    int lines_left_ = 0; // that may be logged until:
    sink::TimePoint next_log_interval_at_{};
    int lines_dropped_ = 0;
    SinkStatus published_ = {};
    sink::TimePoint publish_at_ = never;

    static constexpr sink::TimePoint never = sink::TimePoint::max();
};

} // namespace outbox
