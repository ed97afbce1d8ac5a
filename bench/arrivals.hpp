// What a receiver knows: when each event was there first, and how many times. An event is known by
// the number in its body.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

// A line of output that somebody waits for.
inline void say(const std::string& line)
{
    std::puts(line.c_str());
    std::fflush(stdout);
}

// The number after a name, or -1.
inline std::int64_t number_after(std::string_view text, const char* name)
{
    const char* found = strcasestr(std::string(text).c_str(), name);
    return found ? std::strtoll(found + std::strlen(name), nullptr, 10) : -1;
}

class Arrivals {
public:
    explicit Arrivals(std::size_t events) : arrivals_(events), missing_(events) {}

    // Says "all" once every event from 0 on has been there.
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

    // A line per event: its number, when it came first, and how many times it came.
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
