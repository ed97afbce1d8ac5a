#include "sink/util/slot_map.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace outbox::sink {

TEST(SlotMap, FindsAndExtractsEveryInsertedValue)
{
    SlotMap<int> slots;
    EXPECT_TRUE(slots.empty());
    const auto one = slots.insert(1);
    const auto two = slots.insert(2);
    EXPECT_EQ(slots.size(), 2u);
    EXPECT_EQ(*slots.find(one), 1);
    EXPECT_EQ(slots.extract(two), 2);
    EXPECT_EQ(slots.extract(one), 1);
    EXPECT_TRUE(slots.empty());
}

TEST(SlotMap, AnOldKeyFindsNothing)
{
    SlotMap<int> slots;
    const auto old = slots.insert(1);
    (void)slots.extract(old);
    EXPECT_EQ(slots.find(old), nullptr);
    const auto next = slots.insert(2);
    EXPECT_NE(next, old);
    EXPECT_EQ(slots.find(old), nullptr);
    EXPECT_EQ(slots.find(0), nullptr);
    EXPECT_EQ(slots.find(~std::uint64_t{0}), nullptr);
    slots.clear();
    EXPECT_EQ(slots.find(next), nullptr);
}

TEST(SlotMap, AgreesWithStdMap)
{
    std::mt19937 chance(7);
    SlotMap<int> slots;
    std::map<std::uint64_t, int> map;
    for (int i = 0; i < 20'000; ++i) {
        if (chance() % 2 == 0 || map.empty()) {
            EXPECT_TRUE(map.emplace(slots.insert(i), i).second);
        } else {
            const auto found = std::next(map.begin(), chance() % map.size());
            EXPECT_EQ(slots.extract(found->first), found->second);
            map.erase(found);
        }
        ASSERT_EQ(slots.size(), map.size());
    }
    int seen = 0;
    slots.extract_all([&](int) { ++seen; });
    EXPECT_EQ(seen, static_cast<int>(map.size()));
    EXPECT_TRUE(slots.empty());
}

} // namespace outbox::sink
