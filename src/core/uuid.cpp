#include "core/uuid.hpp"

#include "core/error.hpp"

namespace outbox {

UuidText to_text(std::span<const std::uint8_t, 16> uuid) noexcept
{
    constexpr char digits[] = "0123456789abcdef";
    UuidText text;
    char* at = text.data();
    for (std::size_t i = 0; i < uuid.size(); ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = digits[uuid[i] >> 4];
        *at++ = digits[uuid[i] & 0x0F];
    }
    return text;
}

void UuidV7::reset() noexcept
{
    last_time_ = 0;
    pool_used_ = pool_size;
}

std::uint64_t UuidV7::random_bits()
{
    if (pool_used_ == pool_size) {
        if (!random_(pool_.data(), sizeof(pool_)))
            throw Error("XX000", "could not generate random values for a tracking_id");
        pool_used_ = 0;
    }
    // Used words are overwritten, so that they cannot be read from this memory later.
    const std::uint64_t bits = pool_[pool_used_];
    pool_[pool_used_++] = 0;
    return bits;
}

Uuid UuidV7::next(std::int64_t unix_microseconds)
{
    // 60 bits in the order of time: 48 of milliseconds, 12 of 1/4096 milliseconds.
    const auto microseconds = static_cast<std::uint64_t>(unix_microseconds);
    std::uint64_t time = (microseconds / 1000) << 12 | (microseconds % 1000) * 4096 / 1000;
    if (time <= last_time_)
        time = last_time_ + 1;
    last_time_ = time;

    Uuid uuid;
    const std::uint64_t milliseconds = time >> 12;
    for (int i = 0; i < 6; ++i)
        uuid[i] = static_cast<std::uint8_t>(milliseconds >> (40 - 8 * i));
    uuid[6] = static_cast<std::uint8_t>(0x70 | ((time >> 8) & 0x0F));
    uuid[7] = static_cast<std::uint8_t>(time);

    const std::uint64_t random = random_bits();
    for (int i = 0; i < 8; ++i)
        uuid[8 + i] = static_cast<std::uint8_t>(random >> (56 - 8 * i));
    uuid[8] = static_cast<std::uint8_t>(0x80 | (uuid[8] & 0x3F));
    return uuid;
}

} // namespace outbox
