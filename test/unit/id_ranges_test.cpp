#include "core/id_ranges.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace {

using namespace outbox;
using Ranges = std::vector<IdRange>;

std::set<Id> as_set(IdRanges ranges)
{
    std::set<Id> ids;
    for (const IdRange& range : ranges)
        for (Id id = range.from; id < range.upto; ++id)
            ids.insert(id);
    return ids;
}

Ranges random_ranges(std::mt19937& random)
{
    Ranges ranges(random() % 6);
    for (IdRange& range : ranges) {
        range.from = static_cast<Id>(random() % 40);
        range.upto = range.from + static_cast<Id>(random() % 8);
    }
    ranges.resize(merge_ranges(ranges.data(), ranges.size()));
    return ranges;
}

TEST(Ids, MergeSortsMergesAndDropsEmptyRanges)
{
    Ranges ranges{{7, 9}, {1, 3}, {3, 4}, {5, 5}, {8, 12}};
    ranges.resize(merge_ranges(ranges.data(), ranges.size()));
    EXPECT_EQ(ranges, (Ranges{{1, 4}, {7, 12}}));
}

TEST(Ids, AppendExtendsTheLastRange)
{
    IdRange set[3];
    std::size_t size = 0;
    for (const Id id : {1, 2, 3, 7, 8, 20})
        size = append_id(set, size, id);
    EXPECT_EQ(Ranges(set, set + size), (Ranges{{1, 4}, {7, 9}, {20, 21}}));
}

TEST(Ids, OperationsAgreeWithStdSet)
{
    std::mt19937 random(7);
    for (int round = 0; round < 5000; ++round) {
        const Ranges a = random_ranges(random);
        const Ranges b = random_ranges(random);
        const std::set<Id> in_a = as_set(a);
        const std::set<Id> in_b = as_set(b);
        Ranges difference(a.size() + b.size());
        difference.resize(subtract(a, b, difference.data()));
        Ranges common(a.size() + b.size());
        common.resize(intersect(a, b, common.data()));
        std::set<Id> expected_difference;
        std::set<Id> expected_common;
        for (const Id id : in_a)
            (in_b.contains(id) ? expected_common : expected_difference).insert(id);
        EXPECT_EQ(as_set(difference), expected_difference);
        EXPECT_EQ(as_set(common), expected_common);
        EXPECT_EQ(count_ids(a), static_cast<Id>(in_a.size()));
        for (Id id = -1; id < 50; ++id)
            EXPECT_EQ(contains(a, id), in_a.contains(id));

        const Id wanted = static_cast<Id>(random() % 10);
        Ranges first(a.size());
        first.resize(take_first(a, wanted, first.data()));
        std::set<Id> expected_first;
        for (const Id id : in_a)
            if (static_cast<Id>(expected_first.size()) < wanted)
                expected_first.insert(id);
        EXPECT_EQ(as_set(first), expected_first);
    }
}

} // namespace
