#include "core/id_ranges.hpp"

namespace outbox {

std::size_t subtract(IdRanges set, IdRanges taken, IdRange* out) noexcept
{
    std::size_t kept = 0;
    auto hole = taken.begin();
    for (const IdRange& range : set) {
        Id from = range.from;
        while (hole != taken.end() && hole->upto <= from)
            ++hole;
        for (auto next = hole; next != taken.end() && next->from < range.upto; ++next) {
            if (from < next->from)
                out[kept++] = {from, next->from};
            from = next->upto;
        }
        if (from < range.upto)
            out[kept++] = {from, range.upto};
    }
    return kept;
}

std::size_t intersect(IdRanges set, IdRanges other, IdRange* out) noexcept
{
    std::size_t kept = 0;
    auto a = set.begin();
    auto b = other.begin();
    while (a != set.end() && b != other.end()) {
        const IdRange common{std::max(a->from, b->from), std::min(a->upto, b->upto)};
        if (common.from < common.upto)
            out[kept++] = common;
        if (a->upto < b->upto)
            ++a;
        else
            ++b;
    }
    return kept;
}

std::size_t take_first(IdRanges set, Id count, IdRange* out) noexcept
{
    std::size_t kept = 0;
    for (const IdRange& range : set) {
        if (count <= 0)
            break;
        const Id length = std::min(count, range.upto - range.from);
        out[kept++] = {range.from, range.from + length};
        count -= length;
    }
    return kept;
}

} // namespace outbox
