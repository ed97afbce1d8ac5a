#include "core/cursor.hpp"

namespace outbox {

namespace {

// Appends a range to the `size` ranges of `out`, or extends the last one if both are adjacent and
// have the same `above`. Returns the new number of ranges.
std::size_t append(RunningRange* out, std::size_t size, const RunningRange& next) noexcept
{
    if (size > 0 && out[size - 1].upto == next.from && out[size - 1].above == next.above) {
        out[size - 1].upto = next.upto;
        return size;
    }
    out[size] = next;
    return size + 1;
}

} // namespace

const RunningRange* Position::find(Xid xid) const noexcept
{
    const auto after =
        std::upper_bound(running.begin(), running.end(), xid,
                         [](Xid x, const RunningRange& range) { return x < range.from; });
    if (after == running.begin() || xid >= std::prev(after)->upto)
        return nullptr;
    return &*std::prev(after);
}

bool Position::covers(Xid xid, Id id) const noexcept
{
    if (id > seq)
        return false;
    const RunningRange* exception = find(xid);
    return exception == nullptr || id <= exception->above;
}

bool Cursor::has_passed(Xid xid, Id id) const noexcept
{
    return passed.covers(xid, id) || (target && id <= last_id && target->covers(xid, id));
}

Id Cursor::known_upto() const noexcept
{
    const auto known = [](Id seq, std::span<const RunningRange> running) {
        for (const RunningRange& range : running)
            seq = std::min(seq, range.above);
        return seq;
    };
    const Id behind = known(passed.seq, passed.running);
    return target ? std::max(behind, known(last_id, target->running)) : behind;
}

std::size_t make_running_ranges(std::span<XidRange> ranges, const Position& passed,
                                RunningRange* out) noexcept
{
    std::size_t size = 0;
    auto known = passed.running.begin();
    // Merged, because a snapshot lists an xid twice while its transaction is being prepared.
    for (const XidRange& range : ranges.first(merge_ranges(ranges.data(), ranges.size()))) {
        Xid from = range.from;
        while (known != passed.running.end() && known->upto <= from)
            ++known;
        for (auto next = known; next != passed.running.end() && next->from < range.upto; ++next) {
            if (from < next->from) {
                size = append(out, size, {from, next->from, passed.seq});
                from = next->from;
            }
            const Xid upto = std::min(range.upto, next->upto);
            size = append(out, size, {from, upto, next->above});
            from = upto;
        }
        if (from < range.upto)
            size = append(out, size, {from, range.upto, passed.seq});
    }
    return size;
}

std::size_t find_ended_ranges(const Position& passed, const Position& target,
                              RunningRange* out) noexcept
{
    std::size_t size = 0;
    auto running = target.running.begin();
    for (const RunningRange& before : passed.running) {
        Xid from = before.from;
        while (running != target.running.end() && running->upto <= from)
            ++running;
        for (auto next = running; next != target.running.end() && next->from < before.upto;
             ++next) {
            if (from < next->from)
                size = append(out, size, {from, next->from, before.above});
            from = std::max(from, next->upto);
        }
        if (from < before.upto)
            size = append(out, size, {from, before.upto, before.above});
    }
    return size;
}

} // namespace outbox
