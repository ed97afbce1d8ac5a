// Records of a receiver: the time of the first arrival of each event, and its number of arrivals.
// An event is identified by the number in its body.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

// Prints a line and flushes, because the benchmark waits for it.
inline void say(const std::string& line)
{
    std::puts(line.c_str());
    std::fflush(stdout);
}

// The number that follows `name`, or -1 if `name` is missing.
inline std::int64_t number_after(std::string_view text, const char* name)
{
    const char* found = strcasestr(std::string(text).c_str(), name);
    return found ? std::strtoll(found + std::strlen(name), nullptr, 10) : -1;
}

class Arrivals {
public:
    explicit Arrivals(std::size_t events) : arrivals_(events), missing_(events) {}

    // Prints "all" when every event from 0 on has arrived.
    void note(std::string_view body, std::int64_t moment)
    {
        const std::int64_t number = number_after(body, "\"number\":");
        if (number < 0 || static_cast<std::size_t>(number) >= arrivals_.size())
            return;
        Arrival& arrival = arrivals_[static_cast<std::size_t>(number)];
        if (arrival.times++ > 0)
            return;
        arrival.first = moment;
        if (--missing_ == 0)
            say("all");
    }

    // Prints a line per event: its number, the time of its first arrival, and its number of
    // arrivals.
    void print() const
    {
        for (std::size_t number = 0; number < arrivals_.size(); ++number)
            std::printf("%zu %jd %d\n", number, static_cast<std::intmax_t>(arrivals_[number].first),
                        arrivals_[number].times);
    }

private:
    struct Arrival {
        std::int64_t first = 0;
        int times = 0;
    };

    std::vector<Arrival> arrivals_;
    std::size_t missing_;
};
