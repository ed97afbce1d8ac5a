#include "relay/sink_status_reporter.hpp"

#include "pg/server_log.hpp"

#include <algorithm>

namespace outbox {

namespace {

using sink::TimePoint;
using std::chrono::milliseconds;

// So many lines of a sink's library are logged, in so long.
constexpr int remarks_at_once = 5;
constexpr milliseconds between_remarks{10'000};

// How often the board is written while only numbers change.
constexpr milliseconds between_shows{100};

TimestampTz to_timestamp(TimePoint time, TimePoint now)
{
    using std::chrono::duration_cast;
    return GetCurrentTimestamp() + duration_cast<std::chrono::microseconds>(time - now).count();
}

} // namespace

void SinkStatusReporter::pass_on_remarks(sink::Dispatcher& dispatcher, TimePoint now)
{
    const std::vector<std::string> remarks = dispatcher.take_log_lines();
    if (remarks.empty())
        return;
    if (now >= more_remarks_) {
        if (remarks_dropped_ > 0)
            pg::log_line(LOG, "sink \"" + name_ + "\" had " + std::to_string(remarks_dropped_) +
                                  " more such lines");
        more_remarks_ = now + between_remarks;
        remarks_left_ = remarks_at_once;
        remarks_dropped_ = 0;
    }
    for (const std::string& remark : remarks)
        if (remarks_left_-- > 0)
            pg::log_line(LOG, "sink \"" + name_ + "\": " + remark);
        else
            ++remarks_dropped_;
}

void SinkStatusReporter::log_change(bool in_trouble, const std::string& status_message)
{
    if (in_trouble)
        pg::log_line(WARNING, "sink \"" + name_ + "\" is in trouble: " + status_message,
                     "Its events wait; it is tried again with growing pauses.");
    else
        pg::log_line(LOG, "sink \"" + name_ + "\" is back");
}

void SinkStatusReporter::publish(sink::Dispatcher& dispatcher, const std::string& problem,
                                 TimePoint now)
{
    pass_on_remarks(dispatcher, now);
    // A receiver may be away although nothing has failed.
    const std::string status_message =
        dispatcher.troubles() > 0 ? dispatcher.last_trouble() : dispatcher.status_message();
    const int troubles = std::max(dispatcher.troubles(), status_message.empty() ? 0 : 1);
    const bool in_trouble = troubles > 0;
    if (in_trouble != in_trouble_)
        log_change(in_trouble, status_message);
    SinkState state = {};
    state.consumer = consumer_;
    state.tenant = tenant_;
    state.in_hand = static_cast<int32>(dispatcher.in_hand());
    state.on_the_way = static_cast<int32>(dispatcher.on_the_way());
    state.troubles = troubles + !problem.empty();
    state.delivered = static_cast<int64>(dispatcher.delivered());
    state.rejected = static_cast<int64>(dispatcher.rejected());
    const bool is_same = state.in_hand == shown_.in_hand && state.on_the_way == shown_.on_the_way &&
                         state.troubles == shown_.troubles && state.delivered == shown_.delivered &&
                         state.rejected == shown_.rejected;
    const bool is_urgent = state.troubles != shown_.troubles || in_trouble != in_trouble_;
    in_trouble_ = in_trouble;
    if (is_same) {
        show_at_ = never;
        return;
    }
    if (!is_urgent && show_at_ == never)
        show_at_ = now + between_shows;
    if (!is_urgent && now < show_at_)
        return;
    state.resume_at =
        dispatcher.is_backing_off(now) ? to_timestamp(dispatcher.resume_at(), now) : 0;
    state.last_error_at = shown_.last_error_at;
    if (state.troubles > shown_.troubles)
        state.last_error_at = GetCurrentTimestamp();
    const std::string& error = !problem.empty()         ? problem
                               : status_message.empty() ? dispatcher.last_trouble()
                                                        : status_message;
    error.copy(state.last_error, static_cast<std::size_t>(pg_encoding_mbcliplen(
                                     PG_UTF8, error.data(), static_cast<int>(error.size()),
                                     SinkState::max_error - 1)));
    publish_sink_status(state);
    shown_ = state;
    show_at_ = never;
}

} // namespace outbox
