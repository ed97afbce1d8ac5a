#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace outbox::sink {

// Map that assigns its keys itself. A lookup costs one array access; the array is as long as the
// largest number of entries at one time. A key consists of a slot and the slot's generation, so
// that the key of a removed entry finds nothing when the slot is used again.
template <typename Value>
class SlotMap {
public:
    using Key = std::uint64_t;

    // Stores the value and returns its key.
    Key insert(Value value)
    {
        if (free_.empty()) {
            free_.push_back(slots_.size());
            slots_.emplace_back();
        }
        const std::size_t index = free_.back();
        free_.pop_back();
        slots_[index].value = std::move(value);
        return slots_[index].generation << index_bits | index;
    }

    // Returns the value, valid until the next insert() or its removal; nullptr if the key is
    // unknown or removed.
    Value* find(Key key)
    {
        const std::size_t index = key & index_mask;
        if (index >= slots_.size())
            return nullptr;
        Slot& slot = slots_[index];
        return slot.value && slot.generation == key >> index_bits ? &*slot.value : nullptr;
    }

    // Removes and returns a value. find() must find the key.
    Value extract(Key key)
    {
        const std::size_t index = key & index_mask;
        Slot& slot = slots_[index];
        Value value = std::move(*slot.value);
        slot.value.reset();
        ++slot.generation;
        free_.push_back(index);
        return value;
    }

    bool empty() const { return free_.size() == slots_.size(); }
    std::size_t size() const { return slots_.size() - free_.size(); }

    // Removes all values and calls visit(value) for each.
    template <typename Visit>
    void extract_all(Visit&& visit)
    {
        for (std::size_t index = 0; index < slots_.size(); ++index)
            if (slots_[index].value)
                visit(extract(slots_[index].generation << index_bits | index));
    }

    void clear()
    {
        extract_all([](const Value&) {});
    }

private:
    // 24 bits for the slot: 16 million, more than a sink has requests in flight. 40 bits remain for
    // the generation.
    static constexpr int index_bits = 24;
    static constexpr Key index_mask = (Key{1} << index_bits) - 1;

    struct Slot {
        std::optional<Value> value;
        Key generation = 1;
    };

    std::vector<Slot> slots_;
    std::vector<std::size_t> free_;
};

} // namespace outbox::sink
