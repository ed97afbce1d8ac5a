#include "core/event_type_bloom.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <string>

namespace {

using outbox::EventTypeBloom;

constexpr EventTypeBloom set_of(std::initializer_list<std::string_view> types)
{
    EventTypeBloom set;
    for (const std::string_view type : types)
        set.add(type);
    return set;
}

std::string type_name(int number)
{
    return "order.happened_" + std::to_string(number);
}

TEST(EventTypeBloom, SetsWithACommonTypeIntersect)
{
    EventTypeBloom many;
    for (int i = 0; i < 2000; ++i) {
        many.add(type_name(i));
        EXPECT_TRUE(many.intersects(set_of({type_name(i)}))) << i;
        EXPECT_TRUE(set_of({"other", type_name(i)}).intersects(set_of({type_name(i), "third"})))
            << i;
    }
    EXPECT_TRUE(set_of({""}).intersects(set_of({""})));
    EXPECT_TRUE(set_of({"\xC3\xA4"}).intersects(set_of({"\xC3\xA4"})));
}

TEST(EventTypeBloom, AnEmptySetIntersectsNone)
{
    static_assert(!EventTypeBloom{}.intersects(EventTypeBloom{}));
    static_assert(!EventTypeBloom{}.intersects(EventTypeBloom::all()));
    static_assert(!EventTypeBloom::all().intersects(EventTypeBloom{}));
}

TEST(EventTypeBloom, AllIntersectsEveryNonEmptySet)
{
    EXPECT_TRUE(EventTypeBloom::all().intersects(EventTypeBloom::all()));
    for (int i = 0; i < 500; ++i) {
        EXPECT_TRUE(EventTypeBloom::all().intersects(set_of({type_name(i)}))) << i;
        EXPECT_TRUE(set_of({type_name(i)}).intersects(EventTypeBloom::all())) << i;
    }
}

TEST(EventTypeBloom, AddingASetMakesAUnion)
{
    EventTypeBloom set = set_of({"a"});
    ASSERT_FALSE(set.intersects(set_of({"b"})));
    set.add(set_of({"b"}));
    EXPECT_TRUE(set.intersects(set_of({"a"})));
    EXPECT_TRUE(set.intersects(set_of({"b"})));
    EXPECT_FALSE(set.intersects(set_of({"c"})));
    set.add(EventTypeBloom{});
    EXPECT_FALSE(set.intersects(set_of({"c"})));
    set.add(EventTypeBloom::all());
    EXPECT_TRUE(set.intersects(set_of({"c"})));
}

TEST(EventTypeBloom, FalsePositivesAreBelowOnePercent)
{
    constexpr int count = 200;
    int wrong = 0;
    for (int i = 0; i < count; ++i)
        for (int j = 0; j < i; ++j)
            wrong += set_of({type_name(i)}).intersects(set_of({type_name(j)}));
    EXPECT_LT(wrong, count * (count - 1) / 2 / 100);
}

TEST(EventTypeBloom, EveryBitCanBeSet)
{
    EventTypeBloom set;
    for (int i = 0; i < 5000; ++i)
        set.add(type_name(i));
    for (const std::uint64_t word : set.words)
        EXPECT_EQ(std::popcount(word), 64);
}

// The relay and a backend compare filters that each has built itself.
TEST(EventTypeBloom, TheBitOfATypeIsFixed)
{
    constexpr EventTypeBloom set = set_of({"order.created"});
    int bits = 0;
    for (const std::uint64_t word : set.words)
        bits += std::popcount(word);
    EXPECT_EQ(bits, 1);
    EXPECT_EQ(set.words[2], std::uint64_t{1} << 60);
}

} // namespace
