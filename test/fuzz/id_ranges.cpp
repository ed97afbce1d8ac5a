// Sets of ids, checked against the same sets as bits of a word.
#include "core/id_ranges.hpp"

#include "fuzz.hpp"

#include <bit>

namespace outbox::fuzz {

using Bits = std::uint64_t;
using Ranges = std::vector<IdRange>;

constexpr Id room = 64;

Bits bits_of(IdRanges set)
{
    Bits bits = 0;
    for (Id id = 0; id < room; ++id)
        for (const IdRange& range : set)
            if (id >= range.from && id < range.upto)
                bits |= Bits{1} << id;
    return bits;
}

void check_form(IdRanges set)
{
    for (std::size_t i = 0; i < set.size(); ++i) {
        must(set[i].from < set[i].upto, "no range is empty");
        must(i == 0 || set[i - 1].upto <= set[i].from, "ranges are sorted and disjoint");
    }
}

// Reads a range from each two bytes, in any order and with overlaps.
Ranges read(std::string_view bytes)
{
    const auto id = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]) % room; };
    Ranges ranges;
    for (std::size_t i = 0; i + 1 < bytes.size(); i += 2)
        ranges.push_back({id(i), id(i + 1)});
    const Bits before = bits_of(ranges);
    ranges.resize(merge_ranges(ranges.data(), ranges.size()));
    ranges.shrink_to_fit();
    check_form(ranges);
    must(bits_of(ranges) == before, "merge_ranges() does not change the set");
    return ranges;
}

// Gives `write` exactly the space that it asks for, so that a sanitizer detects more.
template <typename Write>
Bits written(std::size_t size, Write&& write)
{
    Ranges out(size);
    out.resize(write(out.data()));
    check_form(out);
    return bits_of(out);
}

void check_append(IdRanges set)
{
    Ranges again(set.size());
    std::size_t size = 0;
    for (Id id = 0; id < room; ++id)
        if (contains(set, id))
            size = append_id(again.data(), size, id);
    must(std::ranges::equal(std::span(again).first(size), set), "append_id() adds one id");
}

void try_one(std::string_view input)
{
    const auto [first, second] = split<2>(input, '\n');
    const Ranges a = read(first);
    const Ranges b = read(second);
    const Bits in_a = bits_of(a);
    const Bits in_b = bits_of(b);
    must(count_ids(a) == std::popcount(in_a), "count_ids() is the number of ids");
    for (Id id = -1; id <= room; ++id)
        must(contains(a, id) == (id >= 0 && id < room && (in_a >> id & 1) != 0),
             "contains() is true for the ids of the set");
    check_append(a);
    must(written(a.size() + b.size(), [&](IdRange* out) { return subtract(a, b, out); }) ==
             (in_a & ~in_b),
         "a difference has the ids of the first set alone");
    must(written(a.size() + b.size(), [&](IdRange* out) { return intersect(a, b, out); }) ==
             (in_a & in_b),
         "an intersection has the ids of both sets");
    const auto count = static_cast<Id>(input.size() % 20);
    Bits left = in_a;
    for (Id i = 0; i < count; ++i)
        left &= left - 1;
    must(written(a.size(), [&](IdRange* out) { return take_first(a, count, out); }) ==
             (in_a & ~left),
         "the first ids are the lowest");
}

} // namespace outbox::fuzz
