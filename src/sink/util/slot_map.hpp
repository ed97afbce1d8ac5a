#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace outbox::sink {

// Things by a number that it gives out: as quick as an array, and as small as the most that there
// ever were at once. A number is not used twice, so that an old one finds nothing.
template <typename Thing>
class Slots {
public:
    using Number = std::uint64_t;

    Number put(Thing thing)
    {
        if (free_.empty()) {
            free_.push_back(slots_.size());
            slots_.emplace_back();
        }
        const std::size_t index = free_.back();
        free_.pop_back();
        slots_[index].thing = std::move(thing);
        return slots_[index].generation << index_bits | index;
    }

    Thing* find(Number number)
    {
        const std::size_t index = number & index_mask;
        if (index >= slots_.size())
            return nullptr;
        Slot& slot = slots_[index];
        return slot.thing && slot.generation == number >> index_bits ? &*slot.thing : nullptr;
    }

    // Of one that find() has found.
    Thing take(Number number)
    {
        const std::size_t index = number & index_mask;
        Slot& slot = slots_[index];
        Thing thing = std::move(*slot.thing);
        slot.thing.reset();
        ++slot.generation;
        free_.push_back(index);
        return thing;
    }

    bool empty() const { return free_.size() == slots_.size(); }
    std::size_t size() const { return slots_.size() - free_.size(); }

    // Takes all of them.
    template <typename Visit>
    void take_all(Visit&& visit)
    {
        for (std::size_t index = 0; index < slots_.size(); ++index)
            if (slots_[index].thing)
                visit(take(slots_[index].generation << index_bits | index));
    }

    void clear()
    {
        take_all([](const Thing&) {});
    }

private:
    // More than a sink ever has on the way.
    static constexpr int index_bits = 24;
    static constexpr Number index_mask = (Number{1} << index_bits) - 1;

    struct Slot {
        std::optional<Thing> thing;
        Number generation = 1;
    };

    std::vector<Slot> slots_;
    std::vector<std::size_t> free_;
};

} // namespace outbox::sink
