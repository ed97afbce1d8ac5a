// Storage for values that are too large for a state, which has their numbers instead. Equal values
// have equal numbers.
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
    std::deque<Value> values_; // a deque: references stay valid
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

    // Valid as long as the kept cursor exists.
    Cursor view() const
    {
        return {passed.view(), has_target ? std::optional(target.view()) : std::nullopt, last_id};
    }
};

struct KeptSnapshot {
    Xid xmax = 0;
    std::vector<Xid> running; // descending; a transaction that is being prepared is listed twice
    std::uint32_t cursor = 0; // of the newest batch that the snapshot shows
};

std::string key_of(const KeptCursor& cursor);
std::string key_of(const KeptSnapshot& snapshot);

KeptCursor keep(const Cursor& cursor);

// Number 0 is the start of a consumer that reads the whole log.
Kept<KeptCursor>& cursors();
Kept<KeptSnapshot>& snapshots();

} // namespace outbox::model
