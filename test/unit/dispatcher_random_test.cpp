// The relay and the receiver, played by chance.
#include "dispatcher_stage.hpp"
#include "sink/dispatch/pipelined_dispatcher.hpp"
#include "sink/dispatch/serial_dispatcher.hpp"

#include <random>
#include <set>

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;

// Remembers what is still to be said of which event.
template <typename SomeCourier>
class Play {
public:
    Play(unsigned seed, const Receiver& setting) : stage_(setting), dice_(seed) {}
    virtual ~Play() = default;

    void step()
    {
        const int what = throw_dice(100);
        if (what < 30)
            claim();
        else if (what < 70)
            answer_some();
        else if (what < 85)
            stage_.now += std::chrono::milliseconds(throw_dice(2000));
        else if (what < 98)
            settle();
        else if (what < 99)
            drop(1 + throw_dice(static_cast<int>(token_)));
        else if (throw_dice(10) == 0)
            abandon();
        stage_.work();
        EXPECT_EQ(stage_.dispatcher.on_the_way(), expected_on_the_way());
        EXPECT_EQ(stage_.dispatcher.bytes() == 0, stage_.dispatcher.in_hand() == 0);
    }

    // From now on the sink works.
    void recover()
    {
        answer_all();
        for (int i = 0; i < 2000 && stage_.dispatcher.in_hand() > 0; ++i) {
            stage_.round(works);
            settle();
        }
        settle();
        stage_.expect_empty();
        EXPECT_TRUE(open_.empty()) << open_.size() << " are stuck";
    }

    std::size_t settled() const { return settled_; }
    const Receiver& receiver() const { return stage_.receiver; }

    // Did the receiver get these in their order, if of each the last time counts?
    void expect_delivered_in_order() const
    {
        for (const auto& [aggregate, ids] : settled_as_delivered_) {
            const Ids& all = stage_.receiver.delivered.at(aggregate);
            Ids last;
            for (std::size_t i = all.size(); i-- > 0;)
                if (ids.contains(all[i]) && std::ranges::find(last, all[i]) == last.end())
                    last.insert(last.begin(), all[i]);
            EXPECT_EQ(last.size(), ids.size()) << "not delivered, but settled so: " << aggregate;
            EXPECT_TRUE(std::ranges::is_sorted(last)) << aggregate;
        }
    }

protected:
    // The receiver answers, as it likes.
    virtual void answer_some() = 0;

    // What it has in mind is said.
    virtual void answer_all() {}

    virtual std::size_t expected_on_the_way() const { return stage_.receiver.on_the_way.size(); }
    virtual void forget() {}

    int throw_dice(int sides) { return std::uniform_int_distribution(0, sides - 1)(dice_); }

    Stage<SomeCourier> stage_;
    std::mt19937 dice_;

private:
    using Key = std::pair<std::int64_t, std::int64_t>; // token and id

    void claim()
    {
        if (!stage_.dispatcher.can_take_more(stage_.now) || stage_.dispatcher.in_hand() > 60)
            return;
        ++token_;
        for (int i = throw_dice(8); i >= 0; --i) {
            const std::string aggregate = std::to_string(throw_dice(12));
            const std::int64_t id = ++id_;
            open_[{token_, id}] = aggregate;
            stage_.add(id, aggregate, token_, throw_dice(20) == 0 ? 2 : 1);
        }
    }

    // Writes down what is settled; some of what is behind a rejected event is parked.
    void settle()
    {
        const std::vector<SettledEvent> settled = stage_.dispatcher.settled();
        stage_.dispatcher.forget_settled(settled.size());
        for (const SettledEvent& one : settled) {
            const auto found = open_.find({one.handle.token, one.handle.id});
            ASSERT_NE(found, open_.end()) << one.handle.id << " was settled before";
            EXPECT_EQ(one.delivered, one.reason.empty());
            if (stage_.receiver.ordered) {
                auto& last = last_[found->second];
                EXPECT_LT(last, one.handle.id) << "out of order";
                last = one.handle.id;
            }
            if (one.delivered)
                settled_as_delivered_[found->second].insert(one.handle.id);
            open_.erase(found);
            ++settled_;
        }
        for (const SettledEvent& one : settled) {
            if (one.delivered)
                continue;
            Ids blocked;
            for (const Handle& handle : stage_.dispatcher.behind(one))
                if (throw_dice(2) == 0) {
                    blocked.push_back(handle.id);
                    open_.erase({handle.token, handle.id});
                }
            stage_.dispatcher.resume_behind(one, blocked);
        }
    }

    void drop(std::int64_t token)
    {
        settle();
        stage_.dispatcher.drop_batch(token);
        std::erase_if(open_, [&](const auto& one) { return one.first.first == token; });
    }

    void abandon()
    {
        stage_.dispatcher.abandon();
        stage_.expect_empty();
        open_.clear();
        forget();
    }

    std::int64_t token_ = 0;
    std::int64_t id_ = 0;
    std::map<Key, std::string> open_;
    std::map<std::string, std::int64_t> last_;
    std::map<std::string, std::set<std::int64_t>> settled_as_delivered_;
    std::size_t settled_ = 0;
};

class LanePlay final : public Play<SerialDispatcher> {
public:
    using Play::Play;

private:
    void answer_some() override
    {
        auto& receiver = stage_.receiver;
        if (receiver.on_the_way.empty())
            return;
        const auto index =
            static_cast<std::size_t>(throw_dice(static_cast<int>(receiver.on_the_way.size())));
        const int luck = throw_dice(100);
        if (luck < 70)
            receiver.answer(index, DeliveryStatus::delivered, "");
        else if (luck < 80)
            receiver.answer(index, DeliveryStatus::rejected, "bad");
        else if (luck < 95)
            receiver.answer(index, DeliveryStatus::trouble, "busy");
        else
            receiver.answer(index, DeliveryStatus::trouble, "busy",
                            std::chrono::seconds(throw_dice(5)));
    }
};

TEST(SerialDispatcher, WhateverHappensNothingIsLostOrSettledTwiceOrOvertaken)
{
    for (unsigned seed = 1; seed <= 24 && !HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        LanePlay play(seed, {.capacity = 1 + seed % 5,
                             .max_events_per_request = seed % 3 == 0 ? 1 : seed % 3 * 2,
                             .ordered = seed % 4 != 0});
        for (int i = 0; i < 3000 && !HasFailure(); ++i)
            play.step();
        play.recover();
        EXPECT_GT(play.settled(), 200u);
    }
}

// A receiver that decides in the order of sending and, if it keeps its word, lets nothing through
// behind what it did not take; what it decided is heard of later, in any order.
class StreamPlay final : public Play<PipelinedDispatcher> {
public:
    StreamPlay(unsigned seed, const Receiver& setting, bool keeps_its_word)
        : Play(seed, setting), keeps_its_word_(keeps_its_word)
    {}

private:
    struct Decision {
        std::string aggregate;
        Outcome outcome;
    };

    void answer_some() override
    {
        for (int i = throw_dice(6); i > 0; --i)
            decide_one();
        for (int i = throw_dice(6); i > 0 && !decided_.empty(); --i)
            say_one();
    }

    void answer_all() override
    {
        while (!stage_.receiver.on_the_way.empty())
            decide_one();
        while (!decided_.empty())
            say_one();
        stage_.work();
    }

    void decide_one()
    {
        auto& receiver = stage_.receiver;
        if (receiver.on_the_way.empty())
            return;
        std::size_t index =
            static_cast<std::size_t>(throw_dice(static_cast<int>(receiver.on_the_way.size())));
        const std::string aggregate = receiver.on_the_way[index].events.front()->aggregate_id;
        for (std::size_t i = 0; receiver.ordered && i < index; ++i)
            if (receiver.on_the_way[i].events.front()->aggregate_id == aggregate)
                index = i;
        const DeliveryStatus verdict = choose(aggregate);
        if (verdict != DeliveryStatus::delivered)
            broken_.insert(aggregate);
        decided_.push_back(
            {aggregate,
             receiver.decide(index, verdict, verdict == DeliveryStatus::delivered ? "" : "no")});
    }

    DeliveryStatus choose(const std::string& aggregate)
    {
        const int luck = throw_dice(100);
        const bool is_behind = keeps_its_word_ && broken_.contains(aggregate);
        if (luck < 75)
            return is_behind ? DeliveryStatus::returned : DeliveryStatus::delivered;
        return luck < 83   ? DeliveryStatus::rejected
               : luck < 92 ? DeliveryStatus::trouble
                           : DeliveryStatus::returned;
    }

    void say_one()
    {
        const auto index = throw_dice(static_cast<int>(decided_.size()));
        const Decision decision = decided_[static_cast<std::size_t>(index)];
        decided_.erase(decided_.begin() + index);
        stage_.receiver.outcomes.push_back(decision.outcome);
        const auto is_of_it = [&](const Receiver::Arrival& arrival) {
            return arrival.events.front()->aggregate_id == decision.aggregate;
        };
        if (std::ranges::none_of(stage_.receiver.on_the_way, is_of_it) &&
            std::ranges::none_of(
                decided_, [&](const Decision& d) { return d.aggregate == decision.aggregate; }))
            broken_.erase(decision.aggregate);
    }

    std::size_t expected_on_the_way() const override
    {
        return stage_.receiver.on_the_way.size() + decided_.size();
    }

    void forget() override
    {
        decided_.clear();
        broken_.clear();
    }

    bool keeps_its_word_;
    std::vector<Decision> decided_; // and not said yet
    std::set<std::string> broken_;  // aggregates of which nothing is taken until all are home
};

Receiver stream_of(unsigned seed)
{
    return {.capacity = 1 + seed * 7 % 20, .ordered = seed % 4 != 0, .preserves_order = true};
}

TEST(PipelinedDispatcher, WhateverHappensNothingIsLostOrSettledTwiceOrDeliveredTwiceOrOvertaken)
{
    for (unsigned seed = 1; seed <= 24 && !HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        StreamPlay play(seed, stream_of(seed), true);
        for (int i = 0; i < 3000 && !HasFailure(); ++i)
            play.step();
        play.recover();
        EXPECT_GT(play.settled(), 200u);
        for (const auto& [aggregate, ids] : play.receiver().delivered)
            if (play.receiver().ordered) {
                EXPECT_TRUE(std::ranges::adjacent_find(ids, std::greater_equal{}) == ids.end())
                    << aggregate;
            }
    }
}

TEST(PipelinedDispatcher, WhatASinkDeliveredTooEarlyIsDeliveredAgainInItsPlace)
{
    for (unsigned seed = 1; seed <= 24 && !HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        Receiver setting = stream_of(seed);
        setting.ordered = true;
        StreamPlay play(seed, setting, false);
        for (int i = 0; i < 3000 && !HasFailure(); ++i)
            play.step();
        play.recover();
        EXPECT_GT(play.settled(), 200u);
        play.expect_delivered_in_order();
    }
}

} // namespace
