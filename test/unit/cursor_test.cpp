#include "core/cursor.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace {

using namespace outbox;

std::vector<RunningRange> running_ranges(std::vector<XidRange> ranges, const Position& passed)
{
    std::vector<RunningRange> out(ranges.size() + 2 * passed.running.size());
    out.resize(make_running_ranges(ranges, passed, out.data()));
    return out;
}

std::vector<RunningRange> ended_ranges(const Position& passed, const Position& target)
{
    std::vector<RunningRange> out(passed.running.size() + target.running.size());
    out.resize(find_ended_ranges(passed, target, out.data()));
    return out;
}

TEST(Position, CoversLowerIdsUnlessTheirTransactionWasRunning)
{
    const std::vector<RunningRange> running{{10, 11, 3}, {20, 30, 5}};
    const Position position{100, running};
    EXPECT_TRUE(position.covers(9, 100));
    EXPECT_FALSE(position.covers(9, 101));
    EXPECT_FALSE(position.covers(10, 50));
    EXPECT_TRUE(position.covers(11, 50));
    EXPECT_FALSE(position.covers(29, 50));
    EXPECT_TRUE(position.covers(30, 50));
}

TEST(Position, CoversRowsOfAnotherClusterWithTheXidOfARunningTransaction)
{
    const std::vector<RunningRange> running{{10, 11, 30}};
    const Position position{100, running};
    EXPECT_TRUE(position.covers(10, 30));
    EXPECT_FALSE(position.covers(10, 31));
}

TEST(RunningRange, KeepsThePositionAtWhichItsTransactionWasFirstSeen)
{
    const std::vector<RunningRange> before{{10, 11, 3}, {20, 25, 5}};
    const Position passed{100, before};
    const std::vector<RunningRange> expected{
        {10, 11, 3}, {15, 16, 100}, {22, 25, 5}, {25, 40, 100}};
    EXPECT_EQ(running_ranges({{22, 40}, {15, 16}, {10, 11}, {10, 11}}, passed), expected);
}

TEST(RunningRange, EndedRangesAreThoseMissingFromTheTarget)
{
    const std::vector<RunningRange> before{{10, 11, 3}, {20, 30, 5}};
    const std::vector<RunningRange> now{{22, 24, 5}, {28, 50, 9}};
    const std::vector<RunningRange> expected{{10, 11, 3}, {20, 22, 5}, {24, 28, 5}};
    EXPECT_EQ(ended_ranges({100, before}, {200, now}), expected);
    EXPECT_TRUE(ended_ranges({100, now}, {200, now}).empty());
}

TEST(Cursor, KnownUptoIsBelowEveryIdThatMayStillAppear)
{
    const std::vector<RunningRange> running{{10, 11, 30}, {12, 13, 20}};
    EXPECT_EQ((Cursor{{100, running}, {}, 0}).known_upto(), 20);
    EXPECT_EQ((Cursor{{100, {}}, {}, 0}).known_upto(), 100);
    EXPECT_EQ((Cursor{{100, {}}, Position{500, running}, 300}).known_upto(), 100);
    EXPECT_EQ((Cursor{{10, {}}, Position{500, running}, 300}).known_upto(), 20);
    EXPECT_EQ((Cursor{{10, {}}, Position{500, {}}, 300}).known_upto(), 300);
}

// Transactions begin, draw ids and end at random while a reader follows, page by page. Each row of
// a committed transaction must be delivered exactly once, and has_passed() must agree after every
// step.
TEST(Cursor, HandsOutEveryCommittedRowOnce)
{
    struct Transaction {
        Xid xid;
        bool running = true;
        bool committed = false;
        std::vector<Id> ids;
    };
    std::mt19937 random(4711);
    const auto chance = [&](int percent) { return static_cast<int>(random() % 100) < percent; };

    for (int round = 0; round < 300; ++round) {
        std::vector<Transaction> all;
        std::set<Id> handed_out;
        std::vector<RunningRange> passed_running;
        std::vector<RunningRange> target_running;
        Cursor cursor;
        Id sequence = 0;
        Xid next_xid = 100;

        const auto read_page = [&](std::size_t page) {
            if (!cursor.target) {
                std::vector<XidRange> ranges;
                for (const Transaction& one : all)
                    if (one.running)
                        ranges.push_back({one.xid, one.xid + 1});
                target_running = running_ranges(ranges, cursor.passed);
                cursor.target = Position{sequence, target_running};
                cursor.last_id = 0;
            }
            const auto stragglers = ended_ranges(cursor.passed, *cursor.target);
            const Position were{cursor.passed.seq, stragglers};
            std::set<Id> found;
            for (const Transaction& one : all)
                for (const Id id : one.ids) {
                    const RunningRange* straggler = were.find(one.xid);
                    const bool late =
                        id <= cursor.passed.seq && straggler != nullptr && id > straggler->above;
                    const bool fresh = id > cursor.passed.seq && id <= cursor.target->seq &&
                                       cursor.target->covers(one.xid, id);
                    if (one.committed && id > cursor.last_id && (late || fresh))
                        found.insert(id);
                }
            std::size_t taken = 0;
            for (const Id id : found) {
                if (taken++ == page)
                    return;
                EXPECT_TRUE(handed_out.insert(id).second) << "delivered twice: " << id;
                cursor.last_id = id;
            }
            if (taken < page) {
                passed_running = target_running;
                cursor.passed = {cursor.target->seq, passed_running};
                cursor.target.reset();
                cursor.last_id = 0;
            }
        };

        for (int step = 0; step < 200; ++step) {
            if (chance(20))
                all.push_back({next_xid++, true, false, {}});
            for (Transaction& one : all)
                if (one.running && chance(20))
                    one.ids.push_back(++sequence);
                else if (one.running && chance(15)) {
                    one.running = false;
                    one.committed = chance(75);
                }
            if (chance(40))
                read_page(1 + random() % 4);
            for (const Transaction& one : all)
                for (const Id id : one.ids) {
                    if (one.committed) {
                        ASSERT_EQ(cursor.has_passed(one.xid, id), handed_out.contains(id));
                    }
                    if (one.running || (one.committed && !handed_out.contains(id))) {
                        ASSERT_GT(id, cursor.known_upto());
                    }
                }
        }
        for (Transaction& one : all)
            one.running = false;
        for (int page = 0; page < 2000; ++page)
            read_page(3);
        for (const Transaction& one : all)
            for (const Id id : one.ids)
                EXPECT_EQ(handed_out.contains(id), one.committed);
    }
}

} // namespace
