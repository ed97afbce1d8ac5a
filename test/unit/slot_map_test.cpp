#include "sink/util/slot_map.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace outbox::sink {

TEST(Slots, GiveBackWhatWasPutIn)
{
    Slots<int> slots;
    EXPECT_TRUE(slots.empty());
    const auto one = slots.put(1);
    const auto two = slots.put(2);
    EXPECT_EQ(slots.size(), 2u);
    EXPECT_EQ(*slots.find(one), 1);
    EXPECT_EQ(slots.take(two), 2);
    EXPECT_EQ(slots.take(one), 1);
    EXPECT_TRUE(slots.empty());
}

TEST(Slots, AnOldNumberFindsNothing)
{
    Slots<int> slots;
    const auto old = slots.put(1);
    (void)slots.take(old);
    EXPECT_EQ(slots.find(old), nullptr);
    const auto next = slots.put(2);
    EXPECT_NE(next, old);
    EXPECT_EQ(slots.find(old), nullptr);
    EXPECT_EQ(slots.find(0), nullptr);
    EXPECT_EQ(slots.find(~std::uint64_t{0}), nullptr);
    slots.clear();
    EXPECT_EQ(slots.find(next), nullptr);
}

TEST(Slots, BehaveAsAMapWould)
{
    std::mt19937 chance(7);
    Slots<int> slots;
    std::map<std::uint64_t, int> map;
    for (int i = 0; i < 20'000; ++i) {
        if (chance() % 2 == 0 || map.empty()) {
            EXPECT_TRUE(map.emplace(slots.put(i), i).second);
        } else {
            const auto found = std::next(map.begin(), chance() % map.size());
            EXPECT_EQ(slots.take(found->first), found->second);
            map.erase(found);
        }
        ASSERT_EQ(slots.size(), map.size());
    }
    int seen = 0;
    slots.take_all([&](int) { ++seen; });
    EXPECT_EQ(seen, static_cast<int>(map.size()));
    EXPECT_TRUE(slots.empty());
}

} // namespace outbox::sink
