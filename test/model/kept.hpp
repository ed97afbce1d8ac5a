// Values that are too large for a state: states have their numbers. Equal values have equal
// numbers.
#pragma once

#include "core/cursor.hpp"

#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

namespace outbox::model {

template <typename Value>
class Kept {
public:
    std::uint32_t number_of(const Value& value)
    {
        const auto [place, is_new] =
            numbers_.try_emplace(key_of(value), static_cast<std::uint32_t>(values_.size()));
        if (is_new)
            values_.push_back(value);
        return place->second;
    }

    const Value& operator[](std::uint32_t number) const { return values_[number]; }
    std::size_t size() const { return values_.size(); }

private:
    std::unordered_map<std::string, std::uint32_t> numbers_;
    std::deque<Value> values_; // they stay where they are
};

struct KeptPosition {
    Id seq = 0;
    std::vector<RunningRange> running;

    Position view() const { return {seq, running}; }
};

struct KeptCursor {
    KeptPosition passed;
    bool has_target = false;
    KeptPosition target;
    Id last_id = 0;

    // Good for as long as the cursor is kept.
    Cursor view() const
    {
        return {passed.view(), has_target ? std::optional(target.view()) : std::nullopt, last_id};
    }
};

struct KeptSnapshot {
    Xid xmax = 0;
    std::vector<Xid> running; // descending; twice what is being prepared
    std::uint32_t cursor = 0; // in the newest batch that it shows
};

std::string key_of(const KeptCursor& cursor);
std::string key_of(const KeptSnapshot& snapshot);

KeptCursor keep(const Cursor& cursor);

// Number 0 is where a consumer begins that reads everything.
Kept<KeptCursor>& cursors();
Kept<KeptSnapshot>& snapshots();

} // namespace outbox::model
