#include "pg/server_log.hpp"

#include "pg/exceptions.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace outbox::pg {

namespace {

using Clock = std::chrono::steady_clock;

// Repeats of a line within this time are counted, and the count is part of the next line.
constexpr std::chrono::seconds min_repeat_interval{10};

struct LoggedLine {
    std::string message;
    Clock::time_point at;
    int suppressed = 0; // repeats since it was logged
};

// Returns the entry of a message. A new message replaces the one logged longest ago; its `at` is
// Clock::time_point::min().
LoggedLine* find_or_replace_oldest(const std::string& message)
{
    static LoggedLine logged[16];
    const auto found = std::ranges::find(logged, message, &LoggedLine::message);
    if (found != std::end(logged))
        return found;
    LoggedLine* oldest = std::ranges::min_element(logged, {}, &LoggedLine::at);
    *oldest = {message, Clock::time_point::min(), 0};
    return oldest;
}

} // namespace

void log_rate_limited(int level, const std::string& message, const std::string& hint)
{
    LoggedLine* logged = find_or_replace_oldest(message);
    if (logged->at != Clock::time_point::min() && Clock::now() < logged->at + min_repeat_interval) {
        ++logged->suppressed;
        return;
    }
    const int times = std::exchange(logged->suppressed, 0);
    logged->at = Clock::now();
    const std::string repeated =
        times > 0 ? message + " (" + std::to_string(times) + " more times since it was last logged)"
                  : message;
    const char* text = repeated.c_str();
    const char* help = hint.empty() ? nullptr : hint.c_str();
    guarded_call([&] {
        ereport(level,
                (errmsg_internal("outbox: %s", text), help != nullptr ? errhint("%s", help) : 0));
    });
}

} // namespace outbox::pg
