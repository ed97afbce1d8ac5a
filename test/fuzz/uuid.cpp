// Tracking ids increase for every behavior of the clock.
#include "core/uuid.hpp"

#include "fuzz.hpp"

#include <cstring>

namespace outbox::fuzz {

bool fill(void* buffer, std::size_t size)
{
    std::memset(buffer, 0xFF, size); // sets every random bit
    return true;
}

bool fail(void*, std::size_t)
{
    return false;
}

std::uint64_t milliseconds_of(const Uuid& uuid)
{
    std::uint64_t milliseconds = 0;
    for (int i = 0; i < 6; ++i)
        milliseconds = milliseconds << 8 | uuid[static_cast<std::size_t>(i)];
    return milliseconds;
}

// Each eight bytes are a time, from 1970 to a few years before 48 bits of milliseconds overflow.
void try_one(std::string_view input)
{
    constexpr std::uint64_t end = (std::uint64_t{1} << 48) * 999;
    UuidV7 uuids(fill);
    Uuid last{};
    std::uint64_t latest = 0;
    for (; input.size() >= sizeof(latest); input.remove_prefix(sizeof(latest))) {
        std::uint64_t time = 0;
        std::memcpy(&time, input.data(), sizeof(time));
        time %= end;
        const Uuid uuid = uuids.next(static_cast<std::int64_t>(time));
        must(last < uuid, "tracking ids increase");
        must(uuid[6] >> 4 == 7 && uuid[8] >> 6 == 2, "tracking ids have version 7");
        must(milliseconds_of(uuid) >= time / 1000,
             "tracking ids have no earlier time than the clock");
        if (time > latest)
            must(milliseconds_of(uuid) - time / 1000 <= 1,
                 "tracking ids have the time of the clock");
        latest = std::max(latest, time);
        last = uuid;
    }
    UuidV7 broken(fail);
    const auto error = error_of([&] { broken.next(0); });
    must(error && std::string_view(error->sqlstate()) == "XX000", "no chance, no tracking id");
}

} // namespace outbox::fuzz
