// Planted bugs: functions that replace those of the product. Calls between objects of the product
// are redirected by the linker (--wrap, see the Makefile), which keeps the original function under
// the name __real_….
#include "planted.hpp"

#include "consumer/read_page.hpp"
#include "extension/locks.hpp"
#include "kept.hpp"
#include "pg/sequence.hpp"
#include "product.hpp"
#include "server.hpp"

#include <algorithm>
#include <span>
#include <vector>

#define REAL(mangled) asm("__real_" mangled)
#define WRAP(mangled) asm("__wrap_" mangled)
#define TAKE_LOG_SNAPSHOT "_ZN6outbox17take_log_snapshotEv"
#define PASS_TARGET "_ZN6outbox11pass_targetERNS_6CursorE"
#define NEXT_OF_TARGET "_ZN6outbox10TargetScan4nextEv"

namespace outbox::model {

namespace {

bool has(Bug bug)
{
    return playing.setting->bug == bug;
}

// All messages that a scan of a target finds, in a wrong order.
struct Shuffled {
    bool is_filled = false;
    std::size_t at = 0;
    std::vector<Message> messages;
    Id passed = 0; // a late commit has an id up to here
};

Shuffled shuffled;

} // namespace

void enqueue_as_planned(int count)
{
    if (!has(Bug::id_before_xid))
        return enqueue(count);
    const Id id = pg::draw_values(0, count);
    for (int i = 0; i < count; ++i)
        insert_row(id + i);
}

std::uint32_t cursor_as_planned()
{
    const std::uint32_t number =
        has(Bug::old_snapshot) ? snapshots()[playing.old_snapshot].cursor : ask(Question::cursor);
    shuffled = {};
    shuffled.passed = cursors()[number].passed.seq;
    return number;
}

void claim_as_planned(const ClaimRequest& request, MessageReceiver& caller)
{
    if (has(Bug::old_snapshot))
        playing.old_snapshot = ask(Question::snapshot);
    const ClaimResult claimed = claim_batch(request, caller);
    if (has(Bug::commit_not_forced))
        playing.session().forces_sync = false;
    if (has(Bug::lock_given_up) && claimed.count > 0)
        unlock_consumer(1);
}

// ---- log snapshot

LogSnapshot real_take_log_snapshot() REAL(TAKE_LOG_SNAPSHOT);
LogSnapshot take_log_snapshot_as_planned() WRAP(TAKE_LOG_SNAPSHOT);

namespace {

LogSnapshot take_wrong_log_snapshot()
{
    LogSnapshot log_snapshot = {};
    log_snapshot.snapshot =
        has(Bug::old_snapshot) ? snapshot_of(playing.old_snapshot) : GetLatestSnapshot();
    FullTransactionId next = {};
    if (has(Bug::next_xid_before_sequence))
        next = ReadNextFullTransactionId();
    log_snapshot.seq = pg::last_drawn_value(0);
    if (!has(Bug::next_xid_before_sequence))
        next = ReadNextFullTransactionId();

    auto* ranges =
        static_cast<XidRange*>(palloc(sizeof(XidRange) * (log_snapshot.snapshot->xcnt + 2)));
    std::size_t count = 0;
    const std::span listed(log_snapshot.snapshot->xip, log_snapshot.snapshot->xcnt);
    for (const TransactionId xid : listed)
        if (!has(Bug::doubled_left_out) || std::ranges::count(listed, xid) == 1)
            ranges[count++] = {xid, Xid{xid} + 1};
    if (!has(Bug::list_not_extended))
        ranges[count++] = {log_snapshot.snapshot->xmax, U64FromFullTransactionId(next)};
    if (playing.own_xid != 0)
        ranges[count++] = {playing.own_xid, Xid{playing.own_xid} + 1};
    log_snapshot.running = {ranges, count};
    return log_snapshot;
}

} // namespace

LogSnapshot take_log_snapshot_as_planned()
{
    switch (playing.setting->bug) {
    case Bug::list_not_extended:
    case Bug::next_xid_before_sequence:
    case Bug::old_snapshot:
    case Bug::doubled_left_out:
        return take_wrong_log_snapshot();
    default:
        return real_take_log_snapshot();
    }
}

// ---- position

void real_pass_target(Cursor& cursor) REAL(PASS_TARGET);
void pass_target_as_planned(Cursor& cursor) WRAP(PASS_TARGET);

void pass_target_as_planned(Cursor& cursor)
{
    real_pass_target(cursor);
    if (has(Bug::position_too_high))
        ++cursor.passed.seq;
    if (has(Bug::position_too_low) && cursor.passed.seq > 0)
        --cursor.passed.seq;
    shuffled = {};
    shuffled.passed = cursor.passed.seq;
}

// ---- order of late commits

const Message* real_next(TargetScan* scan) REAL(NEXT_OF_TARGET);
const Message* next_as_planned(TargetScan* scan) WRAP(NEXT_OF_TARGET);

namespace {

void shuffle(std::vector<Message>& messages)
{
    const auto rest = std::ranges::find_if(
        messages, [](const Message& message) { return message.id() > shuffled.passed; });
    if (has(Bug::late_commits_last))
        std::rotate(messages.begin(), rest, messages.end());
    else
        std::stable_sort(messages.begin(), rest,
                         [](const Message& a, const Message& b) { return a.xid() < b.xid(); });
}

} // namespace

const Message* next_as_planned(TargetScan* scan)
{
    if (!has(Bug::late_commits_not_merged) && !has(Bug::late_commits_last))
        return real_next(scan);
    if (!shuffled.is_filled) {
        shuffled.is_filled = true;
        while (const Message* message = real_next(scan))
            shuffled.messages.push_back(*message);
        shuffle(shuffled.messages);
    }
    return shuffled.at < shuffled.messages.size() ? &shuffled.messages[shuffled.at++] : nullptr;
}

} // namespace outbox::model
