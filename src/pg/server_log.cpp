#include "pg/server_log.hpp"

#include "pg/exceptions.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace outbox::pg {

namespace {

using Clock = std::chrono::steady_clock;

// What goes wrong again and again is said again after a while, with how often it was.
constexpr std::chrono::seconds between_repetitions{10};

struct Said {
    std::string message;
    Clock::time_point at;
    int since = 0; // times that it was not said
};

Said* find_said(const std::string& message)
{
    static Said said[16];
    const auto found = std::ranges::find(said, message, &Said::message);
    if (found != std::end(said))
        return found;
    Said* oldest = std::ranges::min_element(said, {}, &Said::at);
    *oldest = {message, Clock::time_point::min(), 0};
    return oldest;
}

} // namespace

void log_line(int level, const std::string& message, const std::string& hint)
{
    Said* said = find_said(message);
    if (said->at != Clock::time_point::min() && Clock::now() < said->at + between_repetitions) {
        ++said->since;
        return;
    }
    const int times = std::exchange(said->since, 0);
    said->at = Clock::now();
    const std::string repeated =
        times > 0 ? message + " (and " + std::to_string(times) + " times since the last such line)"
                  : message;
    const char* text = repeated.c_str();
    const char* help = hint.empty() ? nullptr : hint.c_str();
    call([&] {
        ereport(level,
                (errmsg_internal("outbox: %s", text), help != nullptr ? errhint("%s", help) : 0));
    });
}

} // namespace outbox::pg
