#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace outbox {

using Uuid = std::array<std::uint8_t, 16>;

// As 8-4-4-4-12 digits.
using UuidText = std::array<char, 36>;
UuidText to_text(std::span<const std::uint8_t, 16> uuid) noexcept;

// Makes UUIDs of version 7 (RFC 9562, method 3) that strictly increase within one generator, also
// when the clock stands still or jumps back: 48 bits of milliseconds, 12 bits that continue them
// below the millisecond, 62 random bits.
class UuidV7 {
public:
    // Fills the buffer with strong random bytes; false if there are none to be had.
    using RandomSource = bool (*)(void* buffer, std::size_t size);

    explicit constexpr UuidV7(RandomSource random) : random_(random) {}

    // Forgets bytes drawn ahead and the last time: for a process that inherited a generator.
    void reset() noexcept;

    // Throws outbox::Error when the random source fails.
    Uuid next(std::int64_t unix_microseconds);

private:
    std::uint64_t random_bits();

    // Drawn in bulk: a call of the random source costs more than everything else here.
    static constexpr std::size_t pool_size = 512;

    RandomSource random_;
    std::uint64_t last_time_ = 0;
    std::size_t pool_used_ = pool_size;
    std::array<std::uint64_t, pool_size> pool_{};
};

} // namespace outbox
