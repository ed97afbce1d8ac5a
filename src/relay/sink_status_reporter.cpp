#include "relay/sink_status_reporter.hpp"

#include "pg/server_log.hpp"

#include <algorithm>

namespace outbox {

namespace {

using sink::TimePoint;
using std::chrono::milliseconds;

// Rate limit for log lines of a sink's library: librdkafka repeats lines while a broker is away.
constexpr int max_lines_per_interval = 5;
constexpr milliseconds log_interval{10'000};

// Interval between updates of shared memory if only counters change: each takes the LWLock.
constexpr milliseconds publish_interval{100};

// Converts a time of the steady clock, of which `now` is the current one.
TimestampTz to_timestamp(TimePoint time, TimePoint now)
{
    using std::chrono::duration_cast;
    return GetCurrentTimestamp() + duration_cast<std::chrono::microseconds>(time - now).count();
}

} // namespace

void SinkStatusReporter::log_library_lines(sink::Dispatcher& dispatcher, TimePoint now)
{
    const std::vector<std::string> lines = dispatcher.take_log_lines();
    if (lines.empty())
        return;
    if (now >= next_log_interval_at_) {
        if (lines_dropped_ > 0)
            pg::log_rate_limited(LOG, "sink \"" + name_ + "\" had " +
                                          std::to_string(lines_dropped_) +
                                          " more log lines, which were left out");
        next_log_interval_at_ = now + log_interval;
        lines_left_ = max_lines_per_interval;
        lines_dropped_ = 0;
    }
    for (const std::string& line : lines)
        if (lines_left_-- > 0)
            pg::log_rate_limited(LOG, "sink \"" + name_ + "\": " + line);
        else
            ++lines_dropped_;
}

void SinkStatusReporter::log_status_change(bool is_failing, const std::string& status_message)
{
    if (is_failing)
        pg::log_rate_limited(WARNING, "sink \"" + name_ + "\" is in trouble: " + status_message,
                             "Its events wait; the relay retries it after increasing pauses.");
    else
        pg::log_rate_limited(LOG, "sink \"" + name_ + "\" is back");
}

void SinkStatusReporter::publish(sink::Dispatcher& dispatcher, const std::string& transaction_error,
                                 TimePoint now)
{
    log_library_lines(dispatcher, now);
    // The endpoint may be unreachable although no request has failed yet.
    const std::string status_message = dispatcher.consecutive_failures() > 0
                                           ? dispatcher.last_error()
                                           : dispatcher.status_message();
    const int consecutive_failures =
        std::max(dispatcher.consecutive_failures(), status_message.empty() ? 0 : 1);
    const bool is_failing = consecutive_failures > 0;
    if (is_failing != is_failing_)
        log_status_change(is_failing, status_message);
    SinkStatus status = {};
    status.consumer = consumer_;
    status.tenant = tenant_;
    status.claimed = static_cast<int32>(dispatcher.claimed());
    status.in_flight = static_cast<int32>(dispatcher.in_flight());
    status.consecutive_failures = consecutive_failures + !transaction_error.empty();
    status.delivered = static_cast<int64>(dispatcher.delivered());
    status.rejected = static_cast<int64>(dispatcher.rejected());
    const bool is_same =
        status.claimed == published_.claimed && status.in_flight == published_.in_flight &&
        status.consecutive_failures == published_.consecutive_failures &&
        status.delivered == published_.delivered && status.rejected == published_.rejected;
    const bool is_urgent =
        status.consecutive_failures != published_.consecutive_failures || is_failing != is_failing_;
    is_failing_ = is_failing;
    if (is_same) {
        publish_at_ = never;
        return;
    }
    if (!is_urgent && publish_at_ == never)
        publish_at_ = now + publish_interval;
    if (!is_urgent && now < publish_at_)
        return;
    status.resume_at =
        dispatcher.is_backing_off(now) ? to_timestamp(dispatcher.resume_at(), now) : 0;
    status.last_error_at = published_.last_error_at;
    if (status.consecutive_failures > published_.consecutive_failures)
        status.last_error_at = GetCurrentTimestamp();
    const std::string& error = !transaction_error.empty() ? transaction_error
                               : status_message.empty()   ? dispatcher.last_error()
                                                          : status_message;
    error.copy(status.last_error, static_cast<std::size_t>(pg_encoding_mbcliplen(
                                      PG_UTF8, error.data(), static_cast<int>(error.size()),
                                      SinkStatus::max_error - 1)));
    publish_sink_status(status);
    published_ = status;
    publish_at_ = never;
}

} // namespace outbox
