#include "core/uuid.hpp"

#include "core/error.hpp"

#include <cstring>
#include <gtest/gtest.h>
#include <set>

namespace {

int draws = 0;

bool counting_random(void* buffer, std::size_t size)
{
    auto* bytes = static_cast<unsigned char*>(buffer);
    for (std::size_t i = 0; i < size; ++i)
        bytes[i] = static_cast<unsigned char>(i * 37 + draws * 101);
    ++draws;
    return true;
}

bool all_ones(void* buffer, std::size_t size)
{
    std::memset(buffer, 0xFF, size);
    return true;
}

bool no_random(void*, std::size_t)
{
    return false;
}

std::int64_t milliseconds(const outbox::Uuid& uuid)
{
    std::int64_t value = 0;
    for (int i = 0; i < 6; ++i)
        value = value << 8 | uuid[i];
    return value;
}

constexpr std::int64_t some_time = 1'767'323'045'123'456; // microseconds

} // namespace

TEST(UuidV7, HasTimeVersionAndVariant)
{
    outbox::UuidV7 generator{all_ones};
    const auto uuid = generator.next(some_time);
    EXPECT_EQ(milliseconds(uuid), some_time / 1000);
    EXPECT_EQ(uuid[6] >> 4, 7);
    EXPECT_EQ(uuid[8] >> 6, 2);
    for (int i = 9; i < 16; ++i)
        EXPECT_EQ(uuid[i], 0xFF);
}

TEST(UuidV7, KeepsMicrosecondsBelowTheMillisecond)
{
    outbox::UuidV7 generator{all_ones};
    const auto uuid = generator.next(some_time);
    const int fraction = (uuid[6] & 0x0F) << 8 | uuid[7];
    EXPECT_EQ(fraction, 456 * 4096 / 1000);
}

TEST(UuidV7, IncreasesWhileTheClockStandsStill)
{
    outbox::UuidV7 generator{counting_random};
    auto last = generator.next(some_time);
    for (int i = 0; i < 100'000; ++i) {
        const auto next = generator.next(some_time);
        ASSERT_LT(last, next);
        last = next;
    }
}

TEST(UuidV7, IncreasesWhenTheClockJumpsBack)
{
    outbox::UuidV7 generator{counting_random};
    const auto before = generator.next(some_time);
    const auto after = generator.next(some_time - 3'600'000'000);
    EXPECT_LT(before, after);
}

TEST(UuidV7, DrawsRandomBytesInBulkAndNeverTwice)
{
    draws = 0;
    outbox::UuidV7 generator{counting_random};
    std::set<outbox::Uuid> seen;
    for (int i = 0; i < 1024; ++i)
        EXPECT_TRUE(seen.insert(generator.next(some_time + i)).second);
    EXPECT_LE(draws, 8);
}

TEST(UuidV7, ResetDiscardsBufferedRandomBytes)
{
    draws = 0;
    outbox::UuidV7 generator{counting_random};
    generator.next(some_time);
    generator.reset();
    generator.next(some_time);
    EXPECT_EQ(draws, 2);
}

TEST(Uuid, IsFormattedAsText)
{
    const outbox::Uuid uuid{0x01, 0x93, 0x5a, 0x0f, 0xff, 0x00, 0x7a, 0xbc,
                            0x8d, 0xef, 0x10, 0x20, 0x30, 0x40, 0x50, 0x69};
    const outbox::UuidText text = outbox::to_text(uuid);
    EXPECT_EQ(std::string(text.begin(), text.end()), "01935a0f-ff00-7abc-8def-102030405069");
}

TEST(UuidV7, FailsWithoutRandomBytes)
{
    outbox::UuidV7 generator{no_random};
    EXPECT_THROW(generator.next(some_time), outbox::Error);
}
