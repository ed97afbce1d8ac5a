#pragma once

#include <cstdint>
#include <ctime>

constexpr std::int64_t second = 1'000'000'000;

// CLOCK_MONOTONIC in nanoseconds: the same clock for all processes of a machine.
inline std::int64_t now()
{
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * second + time.tv_nsec;
}
