// Sets of message ids as sorted, disjoint, half-open ranges. No function allocates memory: results
// go into arrays of the caller, and each function states the size that it needs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace outbox {

// Position of a message in the log: outbox_messages.id.
using Id = std::int64_t;

struct IdRange {
    Id from;
    Id upto; // exclusive

    friend bool operator==(const IdRange&, const IdRange&) = default;
};

using IdRanges = std::span<const IdRange>;

// Returns true if the id is in the set; a binary search.
inline bool contains(IdRanges set, Id id) noexcept
{
    const auto after = std::upper_bound(set.begin(), set.end(), id,
                                        [](Id x, const IdRange& range) { return x < range.from; });
    return after != set.begin() && id < std::prev(after)->upto;
}

// Returns the number of ids in the set.
inline Id count_ids(IdRanges set) noexcept
{
    Id count = 0;
    for (const IdRange& range : set)
        count += range.upto - range.from;
    return count;
}

// Adds an id that is greater than all ids in the set and returns the new number of ranges. `set`
// needs room for one more range.
inline std::size_t append_id(IdRange* set, std::size_t size, Id id) noexcept
{
    if (size > 0 && set[size - 1].upto == id) {
        ++set[size - 1].upto;
        return size;
    }
    set[size] = {id, id + 1};
    return size + 1;
}

// Sorts ranges in place, drops empty ones and merges overlapping and adjacent ones. Returns the
// number left.
template <typename Range>
std::size_t merge_ranges(Range* ranges, std::size_t size) noexcept
{
    std::sort(ranges, ranges + size,
              [](const Range& a, const Range& b) { return a.from < b.from; });
    std::size_t kept = 0;
    for (std::size_t i = 0; i < size; ++i) {
        if (ranges[i].from >= ranges[i].upto)
            continue;
        if (kept > 0 && ranges[i].from <= ranges[kept - 1].upto)
            ranges[kept - 1].upto = std::max(ranges[kept - 1].upto, ranges[i].upto);
        else
            ranges[kept++] = ranges[i];
    }
    return kept;
}

// Writes the ids that are in `set` and not in `taken` to `out`, which needs room for
// set.size() + taken.size() ranges. Returns the number of ranges written.
std::size_t subtract(IdRanges set, IdRanges taken, IdRange* out) noexcept;

// Writes the ids that are in both sets to `out`, which needs room for set.size() + other.size()
// ranges. Returns the number of ranges written.
std::size_t intersect(IdRanges set, IdRanges other, IdRange* out) noexcept;

// Writes the `count` lowest ids of the set to `out`, which needs room for set.size() ranges.
// Returns the number of ranges written.
std::size_t take_first(IdRanges set, Id count, IdRange* out) noexcept;

} // namespace outbox
