#include "core/event_type_bloom.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <string>

namespace {

using outbox::TypeSet;

constexpr TypeSet set_of(std::initializer_list<std::string_view> types)
{
    TypeSet set;
    for (const std::string_view type : types)
        set.add(type);
    return set;
}

std::string type_name(int number)
{
    return "order.happened_" + std::to_string(number);
}

TEST(TypeSet, NeverMissesWhatIsInBoth)
{
    TypeSet many;
    for (int i = 0; i < 2000; ++i) {
        many.add(type_name(i));
        EXPECT_TRUE(many.meets(set_of({type_name(i)}))) << i;
        EXPECT_TRUE(set_of({"other", type_name(i)}).meets(set_of({type_name(i), "third"}))) << i;
    }
    EXPECT_TRUE(set_of({""}).meets(set_of({""})));
    EXPECT_TRUE(set_of({"\xC3\xA4"}).meets(set_of({"\xC3\xA4"})));
}

TEST(TypeSet, AnEmptyOneMeetsNobody)
{
    static_assert(!TypeSet{}.meets(TypeSet{}));
    static_assert(!TypeSet{}.meets(TypeSet::all()));
    static_assert(!TypeSet::all().meets(TypeSet{}));
}

TEST(TypeSet, AllMeetsEverybody)
{
    EXPECT_TRUE(TypeSet::all().meets(TypeSet::all()));
    for (int i = 0; i < 500; ++i) {
        EXPECT_TRUE(TypeSet::all().meets(set_of({type_name(i)}))) << i;
        EXPECT_TRUE(set_of({type_name(i)}).meets(TypeSet::all())) << i;
    }
}

TEST(TypeSet, TakesInAnother)
{
    TypeSet set = set_of({"a"});
    ASSERT_FALSE(set.meets(set_of({"b"})));
    set.add(set_of({"b"}));
    EXPECT_TRUE(set.meets(set_of({"a"})));
    EXPECT_TRUE(set.meets(set_of({"b"})));
    EXPECT_FALSE(set.meets(set_of({"c"})));
    set.add(TypeSet{});
    EXPECT_FALSE(set.meets(set_of({"c"})));
    set.add(TypeSet::all());
    EXPECT_TRUE(set.meets(set_of({"c"})));
}

TEST(TypeSet, SeldomSaysYesWhereTheAnswerIsNo)
{
    constexpr int count = 200;
    int wrong = 0;
    for (int i = 0; i < count; ++i)
        for (int j = 0; j < i; ++j)
            wrong += set_of({type_name(i)}).meets(set_of({type_name(j)}));
    EXPECT_LT(wrong, count * (count - 1) / 2 / 100);
}

TEST(TypeSet, UsesAllOfItself)
{
    TypeSet set;
    for (int i = 0; i < 5000; ++i)
        set.add(type_name(i));
    for (const std::uint64_t word : set.words)
        EXPECT_EQ(std::popcount(word), 64);
}

// Two processes compare theirs.
TEST(TypeSet, IsTheSameEverywhere)
{
    constexpr TypeSet set = set_of({"order.created"});
    int bits = 0;
    for (const std::uint64_t word : set.words)
        bits += std::popcount(word);
    EXPECT_EQ(bits, 1);
    EXPECT_EQ(set.words[2], std::uint64_t{1} << 60);
}

} // namespace
