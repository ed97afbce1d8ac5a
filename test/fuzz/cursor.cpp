// Cursors, checked against a brute-force answer for every transaction and every id.
#include "core/cursor.hpp"

#include "fuzz.hpp"

namespace outbox::fuzz {

constexpr Xid xids = 32;
constexpr Id ids = 16;

// Numbers below a limit, from the bytes of the input; 0 when the input is exhausted.
class Numbers {
public:
    explicit Numbers(std::string_view bytes) : left_(bytes) {}

    std::uint64_t next(std::uint64_t limit)
    {
        if (left_.empty())
            return 0;
        const auto number = static_cast<unsigned char>(left_[0]) % limit;
        left_.remove_prefix(1);
        return number;
    }

    Id next_id(Id limit) { return static_cast<Id>(next(static_cast<std::uint64_t>(limit))); }

private:
    std::string_view left_;
};

// Ranges that are sorted, disjoint and not above the position.
std::vector<RunningRange> read_running(Numbers& numbers, Id seq)
{
    std::vector<RunningRange> running;
    Xid from = 0;
    for (std::uint64_t count = numbers.next(6); count > 0 && from < xids; --count) {
        from += numbers.next(8);
        const Xid upto = from + 1 + numbers.next(6);
        running.push_back({from, upto, numbers.next_id(seq + 1)});
        from = upto;
    }
    return running;
}

void check_form(std::span<const RunningRange> running)
{
    for (std::size_t i = 0; i < running.size(); ++i) {
        must(running[i].from < running[i].upto, "no range is empty");
        must(i == 0 || running[i - 1].upto <= running[i].from, "ranges are sorted and disjoint");
    }
}

bool is_among(std::span<const XidRange> ranges, Xid xid)
{
    return std::ranges::any_of(
        ranges, [&](const XidRange& range) { return xid >= range.from && xid < range.upto; });
}

void check_find(const Position& position)
{
    for (Xid xid = 0; xid < 2 * xids; ++xid) {
        const auto found = std::ranges::find_if(position.running, [&](const RunningRange& range) {
            return xid >= range.from && xid < range.upto;
        });
        must(position.find(xid) ==
                 (found == position.running.end() ? nullptr : std::to_address(found)),
             "a transaction is found in the range that contains it");
    }
}

void check_note(Numbers& numbers, const Position& passed)
{
    std::vector<XidRange> ranges;
    for (std::uint64_t count = numbers.next(6); count > 0; --count) {
        const Xid from = numbers.next(xids);
        ranges.push_back({from, from + numbers.next(8)});
    }
    const std::vector<XidRange> given = ranges;
    std::vector<RunningRange> out(ranges.size() + 2 * passed.running.size());
    out.resize(make_running_ranges(ranges, passed, out.data()));
    check_form(out);
    const Position now{ids, out};
    for (Xid xid = 0; xid < 2 * xids; ++xid) {
        const RunningRange* noted = now.find(xid);
        must((noted != nullptr) == is_among(given, xid), "running transactions are in a range");
        if (noted == nullptr)
            continue;
        const RunningRange* before = passed.find(xid);
        must(noted->above == (before == nullptr ? passed.seq : before->above),
             "ranges of running transactions keep their position");
    }
}

void check_ended(const Position& passed, const Position& target)
{
    std::vector<RunningRange> out(passed.running.size() + target.running.size());
    out.resize(find_ended_ranges(passed, target, out.data()));
    check_form(out);
    const Position ended{ids, out};
    for (Xid xid = 0; xid < 2 * xids; ++xid) {
        const RunningRange* straggler = ended.find(xid);
        const RunningRange* before = passed.find(xid);
        must((straggler != nullptr) == (before != nullptr && target.find(xid) == nullptr),
             "ended ranges have the transactions that ran and have ended");
        must(straggler == nullptr || straggler->above == before->above,
             "ended ranges keep their position");
    }
}

void check_bounds(const Cursor& cursor)
{
    for (Xid xid = 0; xid < 2 * xids; ++xid)
        for (Id id = 1; id < 3 * ids; ++id) {
            const bool has_passed = cursor.has_passed(xid, id);
            must(has_passed || id > cursor.known_upto(),
                 "no unread row is at or below known_upto()");
            must(!has_passed || id <= cursor.read_upto(),
                 "no row above read_upto() counts as read");
        }
}

void try_one(std::string_view input)
{
    Numbers numbers(input);
    Cursor cursor;
    cursor.passed.seq = numbers.next_id(ids);
    const std::vector<RunningRange> passed = read_running(numbers, cursor.passed.seq);
    cursor.passed.running = passed;
    const Id seq = cursor.passed.seq + numbers.next_id(ids);
    const std::vector<RunningRange> running = read_running(numbers, seq);
    const Position target{seq, running};

    check_find(cursor.passed);
    check_note(numbers, cursor.passed);
    check_ended(cursor.passed, target);
    check_bounds(cursor);
    cursor.target = target;
    cursor.last_id = numbers.next_id(seq + 1);
    check_bounds(cursor);
}

} // namespace outbox::fuzz
