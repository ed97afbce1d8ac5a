#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace outbox {

using Uuid = std::array<std::uint8_t, 16>;

// The form 8-4-4-4-12 of lower-case hex digits, without a terminating zero.
using UuidText = std::array<char, 36>;
UuidText to_text(std::span<const std::uint8_t, 16> uuid) noexcept;

// Generator of UUIDs version 7 (RFC 9562, method 3): 48 bits of milliseconds, 12 bits of fractions
// of a millisecond, 62 random bits. UUIDs of one generator strictly increase, also if the clock
// stands still or goes back.
class UuidV7 {
public:
    // Fills the buffer with cryptographically strong random bytes; returns false on failure.
    using RandomSource = bool (*)(void* buffer, std::size_t size);

    explicit constexpr UuidV7(RandomSource random) : random_(random) {}

    // Discards the buffered random bytes and the last time. A process that inherited the generator
    // by fork() calls it first, or it would repeat the random bits of its parent.
    void reset() noexcept;

    // Returns the next UUID. Throws outbox::Error if the random source fails.
    Uuid next(std::int64_t unix_microseconds);

private:
    // Returns 64 random bits from the pool, refilling it if it is used up. Throws outbox::Error
    // (XX000) if the random source fails.
    std::uint64_t random_bits();

    // Random words drawn per call of the random source, which costs more than all other steps.
    static constexpr std::size_t pool_size = 512;

    RandomSource random_;
    std::uint64_t last_time_ = 0;
    std::size_t pool_used_ = pool_size;
    std::array<std::uint64_t, pool_size> pool_{};
};

} // namespace outbox
