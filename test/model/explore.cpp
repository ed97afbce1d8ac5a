#include "explore.hpp"

#include "fingerprint.hpp"

#include <algorithm>

namespace outbox::model {

namespace {

class Explorer {
public:
    explicit Explorer(const Setting& setting) : setting_(setting) {}

    Outcome run()
    {
        add(first_state(setting_), 0, {});
        while (!next_.empty() && outcome_.broken == Promise::none) {
            present_.swap(next_);
            next_.clear();
            const std::size_t first = parents_.size() - present_.size();
            for (std::size_t i = 0; i < present_.size() && outcome_.broken == Promise::none; ++i)
                expand(present_[i], static_cast<std::uint32_t>(first + i));
            ++outcome_.depth;
        }
        outcome_.states = parents_.size();
        return outcome_;
    }

private:
    void expand(const State& state, std::uint32_t number)
    {
        for (const Step step : steps_from(setting_, state)) {
            State next = state;
            ++outcome_.steps;
            ++outcome_.taken[static_cast<std::size_t>(step.action)];
            if (const Promise broken = take(setting_, next, step); broken != Promise::none)
                return report(broken, number, {step});
            if (add(next, number, step); outcome_.broken != Promise::none)
                return;
        }
    }

    void add(const State& state, std::uint32_t parent, Step step)
    {
        if (!known_.insert(fingerprint_of(setting_, state)))
            return;
        const auto number = static_cast<std::uint32_t>(parents_.size());
        parents_.push_back(parent);
        steps_.push_back(step);
        next_.push_back(state);
        if (const Promise broken = check(setting_, state); broken != Promise::none)
            report(broken, number, {});
    }

    void report(Promise broken, std::uint32_t number, const std::vector<Step>& rest)
    {
        outcome_.broken = broken;
        for (; number != 0; number = parents_[number])
            outcome_.story.push_back(steps_[number]);
        std::ranges::reverse(outcome_.story);
        outcome_.story.insert(outcome_.story.end(), rest.begin(), rest.end());
    }

    const Setting& setting_;
    Outcome outcome_;
    FingerprintSet known_;
    std::vector<State> present_; // states at the same distance from the first one
    std::vector<State> next_;
    // For each state, in the order of discovery: the state before it, and the step between
    // them.
    std::vector<std::uint32_t> parents_;
    std::vector<Step> steps_;
};

} // namespace

Outcome explore(const Setting& setting)
{
    return Explorer(setting).run();
}

} // namespace outbox::model
