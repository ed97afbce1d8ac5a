// Dispatchers against a relay and a receiver that act at random.
#include "dispatcher_stage.hpp"
#include "sink/dispatch/pipelined_dispatcher.hpp"
#include "sink/dispatch/serial_dispatcher.hpp"

#include <random>
#include <set>

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;

// Remembers which events are claimed and not settled yet.
template <typename SomeDispatcher>
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
            cancel_all();
        stage_.poll();
        EXPECT_EQ(stage_.dispatcher.in_flight(), expected_in_flight());
        EXPECT_EQ(stage_.dispatcher.claimed_bytes() == 0, stage_.dispatcher.claimed() == 0);
    }

    // The sink succeeds from now on.
    void recover()
    {
        answer_all();
        for (int i = 0; i < 2000 && stage_.dispatcher.claimed() > 0; ++i) {
            stage_.round(works);
            settle();
        }
        settle();
        stage_.expect_empty();
        EXPECT_TRUE(open_.empty()) << open_.size() << " events were never settled";
    }

    std::size_t settled() const { return settled_; }
    const Receiver& receiver() const { return stage_.receiver; }

    // Checks that settled events were delivered in order. Of an event that was delivered
    // several times, the last delivery counts.
    void expect_delivered_in_order() const
    {
        for (const auto& [aggregate, ids] : settled_as_delivered_) {
            const Ids& all = stage_.receiver.delivered.at(aggregate);
            Ids last;
            for (std::size_t i = all.size(); i-- > 0;)
                if (ids.contains(all[i]) && std::ranges::find(last, all[i]) == last.end())
                    last.insert(last.begin(), all[i]);
            EXPECT_EQ(last.size(), ids.size())
                << "settled as delivered without a delivery: " << aggregate;
            EXPECT_TRUE(std::ranges::is_sorted(last)) << aggregate;
        }
    }

protected:
    // The receiver gives random results for some of its requests.
    virtual void answer_some() = 0;

    // Reports the results that the receiver has decided on.
    virtual void answer_all() {}

    virtual std::size_t expected_in_flight() const { return stage_.receiver.in_flight.size(); }
    virtual void forget() {}

    int throw_dice(int sides) { return std::uniform_int_distribution(0, sides - 1)(dice_); }

    Stage<SomeDispatcher> stage_;
    std::mt19937 dice_;

private:
    using Key = std::pair<std::int64_t, std::int64_t>; // token and id

    void claim()
    {
        if (!stage_.dispatcher.can_take_more(stage_.now) || stage_.dispatcher.claimed() > 60)
            return;
        ++token_;
        for (int i = throw_dice(8); i >= 0; --i) {
            const std::string aggregate = std::to_string(throw_dice(12));
            const std::int64_t id = ++id_;
            open_[{token_, id}] = aggregate;
            stage_.add(id, aggregate, token_, throw_dice(20) == 0 ? 2 : 1);
        }
    }

    // Records settled events; adds some of the events behind a rejected one to the blocked
    // ones.
    void settle()
    {
        const std::vector<SettledEvent> settled = stage_.dispatcher.settled();
        stage_.dispatcher.forget_settled(settled.size());
        for (const SettledEvent& one : settled) {
            const auto found = open_.find({one.ref.token, one.ref.id});
            ASSERT_NE(found, open_.end()) << one.ref.id << " was settled twice or never claimed";
            EXPECT_EQ(one.delivered, one.reason.empty());
            if (stage_.receiver.ordered) {
                auto& last = last_[found->second];
                EXPECT_LT(last, one.ref.id) << "out of order";
                last = one.ref.id;
            }
            if (one.delivered)
                settled_as_delivered_[found->second].insert(one.ref.id);
            open_.erase(found);
            ++settled_;
        }
        for (const SettledEvent& one : settled) {
            if (one.delivered)
                continue;
            Ids blocked;
            for (const EventRef& ref : stage_.dispatcher.events_behind(one))
                if (throw_dice(2) == 0) {
                    blocked.push_back(ref.id);
                    open_.erase({ref.token, ref.id});
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

    void cancel_all()
    {
        stage_.dispatcher.cancel_all();
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

class SerialPlay final : public Play<SerialDispatcher> {
public:
    using Play::Play;

private:
    void answer_some() override
    {
        auto& receiver = stage_.receiver;
        if (receiver.in_flight.empty())
            return;
        const auto index =
            static_cast<std::size_t>(throw_dice(static_cast<int>(receiver.in_flight.size())));
        const int roll = throw_dice(100);
        if (roll < 70)
            receiver.answer(index, DeliveryStatus::delivered, "");
        else if (roll < 80)
            receiver.answer(index, DeliveryStatus::rejected, "bad");
        else if (roll < 95)
            receiver.answer(index, DeliveryStatus::unavailable, "busy");
        else
            receiver.answer(index, DeliveryStatus::unavailable, "busy",
                            std::chrono::seconds(throw_dice(5)));
    }
};

TEST(SerialDispatcher, EventsAreSettledOnceAndInOrderUnderRandomFailures)
{
    for (unsigned seed = 1; seed <= 24 && !HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        SerialPlay play(seed, {.max_in_flight = 1 + seed % 5,
                               .max_events_per_request = seed % 3 == 0 ? 1 : seed % 3 * 2,
                               .ordered = seed % 4 != 0});
        for (int i = 0; i < 3000 && !HasFailure(); ++i)
            play.step();
        play.recover();
        EXPECT_GT(play.settled(), 200u);
    }
}

// A receiver that decides in the order of sending. If it really preserves order, it delivers no
// event behind one that it has not delivered. Decisions are reported later, in any order.
class PipelinedPlay final : public Play<PipelinedDispatcher> {
public:
    PipelinedPlay(unsigned seed, const Receiver& setting, bool really_preserves_order)
        : Play(seed, setting), really_preserves_order_(really_preserves_order)
    {}

private:
    struct Decision {
        std::string aggregate;
        DeliveryResult result;
    };

    void answer_some() override
    {
        for (int i = throw_dice(6); i > 0; --i)
            decide_one();
        for (int i = throw_dice(6); i > 0 && !decided_.empty(); --i)
            report_one();
    }

    void answer_all() override
    {
        while (!stage_.receiver.in_flight.empty())
            decide_one();
        while (!decided_.empty())
            report_one();
        stage_.poll();
    }

    void decide_one()
    {
        auto& receiver = stage_.receiver;
        if (receiver.in_flight.empty())
            return;
        std::size_t index =
            static_cast<std::size_t>(throw_dice(static_cast<int>(receiver.in_flight.size())));
        const std::string aggregate = receiver.in_flight[index].events.front()->aggregate_id;
        for (std::size_t i = 0; receiver.ordered && i < index; ++i)
            if (receiver.in_flight[i].events.front()->aggregate_id == aggregate)
                index = i;
        const DeliveryStatus status = choose(aggregate);
        if (status != DeliveryStatus::delivered)
            broken_.insert(aggregate);
        decided_.push_back(
            {aggregate,
             receiver.decide(index, status, status == DeliveryStatus::delivered ? "" : "no")});
    }

    DeliveryStatus choose(const std::string& aggregate)
    {
        const int roll = throw_dice(100);
        const bool is_behind = really_preserves_order_ && broken_.contains(aggregate);
        if (roll < 75)
            return is_behind ? DeliveryStatus::not_sent : DeliveryStatus::delivered;
        return roll < 83   ? DeliveryStatus::rejected
               : roll < 92 ? DeliveryStatus::unavailable
                           : DeliveryStatus::not_sent;
    }

    void report_one()
    {
        const auto index = throw_dice(static_cast<int>(decided_.size()));
        const Decision decision = decided_[static_cast<std::size_t>(index)];
        decided_.erase(decided_.begin() + index);
        stage_.receiver.results.push_back(decision.result);
        const auto is_of_it = [&](const Receiver::InFlightRequest& request) {
            return request.events.front()->aggregate_id == decision.aggregate;
        };
        if (std::ranges::none_of(stage_.receiver.in_flight, is_of_it) &&
            std::ranges::none_of(
                decided_, [&](const Decision& d) { return d.aggregate == decision.aggregate; }))
            broken_.erase(decision.aggregate);
    }

    std::size_t expected_in_flight() const override
    {
        return stage_.receiver.in_flight.size() + decided_.size();
    }

    void forget() override
    {
        decided_.clear();
        broken_.clear();
    }

    bool really_preserves_order_;
    std::vector<Decision> decided_; // not reported yet
    std::set<std::string> broken_;  // with a failure: nothing of them is delivered until none of
                                    // their events is in flight
};

Receiver stream_of(unsigned seed)
{
    return {.max_in_flight = 1 + seed * 7 % 20, .ordered = seed % 4 != 0, .preserves_order = true};
}

TEST(PipelinedDispatcher, EventsAreDeliveredAndSettledOnceAndInOrderUnderRandomFailures)
{
    for (unsigned seed = 1; seed <= 24 && !HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        PipelinedPlay play(seed, stream_of(seed), true);
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

TEST(PipelinedDispatcher, AnEventThatTheSinkDeliversOutOfOrderIsDeliveredAgainInOrder)
{
    for (unsigned seed = 1; seed <= 24 && !HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        Receiver setting = stream_of(seed);
        setting.ordered = true;
        PipelinedPlay play(seed, setting, false);
        for (int i = 0; i < 3000 && !HasFailure(); ++i)
            play.step();
        play.recover();
        EXPECT_GT(play.settled(), 200u);
        play.expect_delivered_in_order();
    }
}

} // namespace
