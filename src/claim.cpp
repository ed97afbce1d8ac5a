#include "claim.hpp"

#include "core/limits.hpp"
#include "deal.hpp"
#include "page.hpp"
#include "pg/key_lock.hpp"
#include "pg/pause.hpp"
#include "pg/values.hpp"
#include "pg/wake.hpp"
#include "poison.hpp"
#include "retries.hpp"

#include <algorithm>
#include <string_view>

namespace outbox {

namespace {

constexpr int lock_patience = 100; // milliseconds

// How many pages a claim reads in search of something that can be handed out now.
constexpr int max_pages = 8;

// How many messages the relay gets from those that wait for another attempt.
constexpr int relay_retries = 32;

struct Outcome {
    int handed_out = 0;
    bool changed = false; // something was settled or moved: it is worth looking again
};

class Claim {
public:
    Claim(const ClaimRequest& request, MessageSink& sink) : request_(request), sink_(sink) {}

    int run();

    // Has it looked at everything there was?
    bool has_all() const { return at_end_; }

private:
    // Reads consumer, cursor and leases anew; or takes them as they were left.
    void refresh();
    void believe(const ConsumerState& state);
    void refresh_behind_lock();
    void keep(const Progress& progress) const;
    bool lock(int patience);
    void unlock_if_unmoved();

    bool recognize();
    void remember() const;

    // The work a claim can find, in the order in which it looks.
    Outcome take_over_expired();
    Outcome hand_out_retries();
    Outcome read_ahead();
    Outcome pick_up_dealt();
    Outcome read_on();

    Outcome take_over(const Batch& batch, const Lease& lease);
    Outcome hand_out_page();
    Outcome deal_page();

    bool is_worth_remembering(const Page& page, Id known_before) const;

    int pass_on(const Batch& batch);

    bool is_relay() const { return request_.relay != nullptr; }
    pg::Growing<Lease> leases_of_relay() const;
    bool is_left_behind(const Lease& lease) const;
    bool enter(int32 partition);
    bool is_busy(int32 partition) const;
    bool has_rest(int32 partition) const;
    const Lease* first_of(int32 partition) const;
    bool can_read_on();
    bool runs_low() const;
    Progress progress_with(std::span<const int64> new_tokens, int64 without = 0) const;
    Holder holder() const { return {request_.worker, now_, request_.lease}; }
    TimestampTz locked_until() const { return now_ + request_.lease; }

    // The consumer that this backend claimed from last, if it has one partition.
    struct Known {
        char name[limits::max_consumer_name_bytes];
        std::size_t name_size;
        int32 id;
    };
    static inline Known known_ = {};

    const ClaimRequest& request_;
    MessageSink& sink_;
    Consumer consumer_ = {};
    Progress progress_ = {};
    bool has_retries_ = false;
    bool has_due_retries_ = false;
    pg::Growing<Lease> leases_;
    TimestampTz now_ = 0;
    bool locked_ = false; // the consumer's lock is ours
    bool moved_ = false;  // and must stay ours, because the consumer has a new newest batch
    int pages_ = 0;       // that were read
    bool at_end_ = false; // of the log
};

int Claim::run()
{
    if (!recognize()) {
        refresh();
        // What others have dealt can be had without the lock; who finds little left reads on.
        const bool reads = runs_low() && lock(0);
        if (consumer_.paused)
            return 0;
        if (consumer_.partitions > 1 && !reads)
            if (const Outcome outcome = pick_up_dealt(); outcome.handed_out > 0)
                return outcome.handed_out;
    }
    // The relay has other sinks to look after, and is woken when whoever has the lock is done.
    if (!locked_ && !lock(is_relay() ? 0 : lock_patience))
        return 0;
    pg::pause_at("lock");

    using Step = Outcome (Claim::*)();
    constexpr Step steps[] = {&Claim::take_over_expired, &Claim::hand_out_retries,
                              &Claim::read_ahead, &Claim::pick_up_dealt, &Claim::read_on};
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        Outcome outcome;
        for (const Step step : steps) {
            outcome = (this->*step)();
            if (outcome.handed_out > 0)
                return outcome.handed_out;
            if (outcome.changed)
                break;
        }
        if (!outcome.changed) {
            unlock_if_unmoved();
            return 0;
        }
        refresh();
    }
}

// Who has not moved the cursor need not keep others waiting for the end of its transaction.
void Claim::unlock_if_unmoved()
{
    if (locked_ && !moved_)
        pg::unlock_consumer(consumer_.id);
    locked_ = false;
}

// Workers claim from the same consumer again and again. What is known of it from the last time
// saves a look before the lock; behind the lock it is looked at anyway.
bool Claim::recognize()
{
    if (const ConsumerState* kept = is_relay() ? request_.relay->kept.find() : nullptr) {
        consumer_.id = kept->consumer.id;
        return true;
    }
    const std::string_view name = pg::to_view(request_.consumer);
    if (known_.name_size == 0 || name != std::string_view(known_.name, known_.name_size))
        return false;
    consumer_.id = known_.id;
    return true;
}

void Claim::remember() const
{
    const std::string_view name = pg::to_view(request_.consumer);
    known_.name_size = consumer_.partitions == 1 ? name.size() : 0;
    known_.id = consumer_.id;
    std::copy(name.begin(), name.end(), known_.name);
}

// The lock is on the consumer's id, and while this one waited another may have come under its name.
bool Claim::lock(int patience)
{
    for (;;) {
        const int32 consumer = consumer_.id;
        if (!pg::lock_consumer(consumer, patience))
            return false;
        refresh_behind_lock();
        remember();
        locked_ = consumer_.id == consumer;
        if (locked_)
            return !consumer_.paused;
        pg::unlock_consumer(consumer);
    }
}

void Claim::refresh()
{
    believe(read_consumer(request_.consumer));
}

void Claim::refresh_behind_lock()
{
    if (const ConsumerState* kept = is_relay() ? request_.relay->kept.find() : nullptr)
        believe(*kept);
    else
        refresh();
}

// Only what is simple is kept: retries come and go without the lock.
void Claim::keep(const Progress& progress) const
{
    if (is_relay() && !has_retries_)
        request_.relay->kept.keep({consumer_, progress, false, false});
}

void Claim::believe(const ConsumerState& state)
{
    consumer_ = state.consumer;
    progress_ = state.progress;
    has_retries_ = state.has_retries;
    has_due_retries_ = state.has_due_retries;
    leases_ = is_relay() ? leases_of_relay() : open_leases(progress_.open_tokens);
    now_ = GetCurrentTimestamp();
    if (consumer_.is_sink != is_relay())
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("this consumer is a sink, which the relay serves"),
                        errhint("Create a consumer of your own for the same events.")));
}

// What the relay has in hand, and what it has settled, need not be looked up.
pg::Growing<Lease> Claim::leases_of_relay() const
{
    const RelayBatches& known = *request_.relay;
    pg::Growing<int64> unknown;
    for (const int64 token : progress_.open_tokens)
        if (!std::ranges::binary_search(known.in_hand, token) &&
            !std::ranges::binary_search(known.settled, token))
            unknown.push(token);
    pg::Growing<Lease> leases = open_leases(unknown.view());
    for (const int64 token : progress_.open_tokens)
        if (std::ranges::binary_search(known.in_hand, token))
            leases.push({token, token, 0, 0, DT_NOEND, false});
    return leases;
}

// ---- partitions of ordered consumers: one open batch at a time

// The lock first, and then a new look: another may have handed out from this partition just before.
bool Claim::enter(int32 partition)
{
    if (!consumer_.ordered)
        return true;
    const int32 consumer = consumer_.id;
    if (!pg::try_lock_partition(consumer, partition))
        return false;
    refresh();
    return consumer_.id == consumer && consumer_.ordered;
}

bool Claim::is_busy(int32 partition) const
{
    for (const Lease& lease : leases_)
        if (lease.partition == partition && !lease.dealt)
            return true;
    return false;
}

// Does a batch wait that was split off another? What is in it comes before what has failed since.
bool Claim::has_rest(int32 partition) const
{
    for (const Lease& lease : leases_)
        if (lease.partition == partition && lease.dealt && lease.token != lease.root)
            return true;
    return false;
}

const Lease* Claim::first_of(int32 partition) const
{
    for (const Lease& lease : leases_)
        if (lease.partition == partition)
            return &lease;
    return nullptr;
}

// Is there anybody who could take what would be read?
bool Claim::can_read_on()
{
    if (pages_ == max_pages || !may_read_on(consumer_, leases_.view()))
        return false;
    // The relay keeps the order of what it has in hand by itself.
    if (!consumer_.ordered || consumer_.partitions > 1 || is_relay())
        return true;
    return enter(0) && first_of(0) == nullptr;
}

// ---- what was handed out before

// A relay that was killed leaves leases that are good for a while; its successor need not wait.
bool Claim::is_left_behind(const Lease& lease) const
{
    if (!is_relay())
        return lease.has_expired(now_);
    return !std::ranges::binary_search(request_.relay->in_hand, lease.token);
}

Outcome Claim::take_over_expired()
{
    const pg::Growing<Lease> candidates = leases_;
    for (const Lease& lease : candidates) {
        if (!is_left_behind(lease) || !enter(lease.partition))
            continue;
        if (const auto batch = lock_for_takeover(lease.token, is_relay() ? DT_NOEND : now_))
            return take_over(*batch, lease);
    }
    return {};
}

// The same ids under a new token. A batch that has expired before is split, so that a message that
// kills its workers is alone in the end. A crash of the relay is no message's fault.
Outcome Claim::take_over(const Batch& batch, const Lease& lease)
{
    if (bury_if_spent(consumer_, batch, lease, now_))
        return {0, true};

    const bool counts = !consumer_.is_sink && has_used_an_attempt(lease);
    const Id portion = counts ? next_portion(batch, lease) : count_ids(batch.ids);
    const Id first_size = Min(portion, static_cast<Id>(request_.batch_size));
    Batch parts[2] = {batch, batch};
    pg::Growing<IdRange> ids[2];
    ids[0].reserve(batch.ids.size());
    ids[0].set_size(take_first(batch.ids, first_size, ids[0].data()));
    ids[1].reserve(batch.ids.size() * 2);
    ids[1].set_size(subtract(batch.ids, ids[0].view(), ids[1].data()));
    // What waits in order is found again where it waits.
    const bool has_rest = !ids[1].empty() && !(consumer_.ordered && batch.from_retries);
    const int count = has_rest ? 2 : 1;
    const int64 first = draw_tokens(count);
    const int64 tokens[2] = {first, first + 1};
    for (int i = 0; i < count; ++i) {
        parts[i].token = tokens[i];
        parts[i].ids = ids[i].view();
        if (counts)
            parts[i].attempts = next_attempt(consumer_, parts[i]);
        parts[i].deliveries += !lease.dealt;
    }
    if (!has_rest && counts)
        count_attempts(consumer_.id, ids[1].view(), batch.attempts);
    supersede(batch.token, tokens[0]);
    const Holder holder = this->holder();
    const Progress progress = progress_with({tokens, static_cast<std::size_t>(count)}, batch.token);
    if (count == 1) {
        add_newest_batch(consumer_.id, parts[0], &holder, progress);
    } else {
        add_batch(consumer_.id, parts[0], &holder);
        add_newest_batch(consumer_.id, parts[1], nullptr, progress);
        pg::wake_at_commit();
    }
    moved_ = true;
    return {pass_on(parts[0]), true};
}

Outcome Claim::hand_out_retries()
{
    if (!has_due_retries_)
        return {};
    Batch batch = {};
    // Copies are read all at once, and the relay's memory is small.
    const int limit = is_relay() ? Min(request_.batch_size, relay_retries) : request_.batch_size;
    if (!consumer_.ordered) {
        batch.ids = due_retries(consumer_.id, progress_.open_tokens, now_, limit);
    } else {
        for (const int32 partition : due_partitions(consumer_.id, now_)) {
            // The aggregates that are due have nothing in other batches of the relay.
            if (!enter(partition) || (!is_relay() && (is_busy(partition) || has_rest(partition))))
                continue;
            batch.partition = partition;
            batch.ids = due_chains(consumer_.id, partition, progress_.open_tokens, now_, limit);
            if (!batch.ids.empty())
                break;
        }
    }
    if (batch.ids.empty())
        return {};
    batch.token = batch.root = draw_tokens(1);
    batch.attempts = batch.deliveries = 1;
    batch.from_retries = true;
    const Holder holder = this->holder();
    add_newest_batch(consumer_.id, batch, &holder, progress_with({&batch.token, 1}));
    moved_ = true;
    return {pass_on(batch), true};
}

Outcome Claim::pick_up_dealt()
{
    // Without the lock, and where order does not matter, each worker begins elsewhere.
    const std::size_t offset =
        locked_ || consumer_.ordered ? 0 : static_cast<std::size_t>(MyProcPid);
    const pg::Growing<Lease> candidates = leases_;
    const std::size_t count = candidates.size();
    for (std::size_t i = 0; i < count; ++i) {
        const Lease& lease = candidates[(i + offset) % count];
        const bool too_large = lease.size > request_.batch_size;
        if (!lease.dealt || (too_large && !locked_))
            continue;
        if (consumer_.ordered) {
            const auto is_next = [&] {
                const Lease* first = first_of(lease.partition);
                return first != nullptr && first->token == lease.token && !is_busy(lease.partition);
            };
            if (!is_next() || !enter(lease.partition) || !is_next())
                continue;
        }
        if (too_large) {
            if (const auto batch = lock_for_takeover(lease.token, now_))
                return take_over(*batch, lease);
        } else if (const auto batch = pick_up(lease.token, holder())) {
            const int handed_out = pass_on(*batch);
            if (handed_out > 0)
                unlock_if_unmoved();
            return {handed_out, true};
        }
    }
    return {};
}

int Claim::pass_on(const Batch& batch)
{
    const int count = hand_out(consumer_, batch, now_, locked_until(), sink_);
    if (count > 0 && request_.settle)
        settle_at_once(consumer_, batch, now_);
    return count;
}

// ---- what is new

// Without order, so few batches wait that the workers will soon be out of them?
bool Claim::runs_low() const
{
    std::size_t dealt = 0;
    for (const Lease& lease : leases_)
        dealt += lease.dealt;
    return !consumer_.ordered && consumer_.partitions > 1 &&
           dealt <= static_cast<std::size_t>(consumer_.partitions);
}

// The others pick up what is left meanwhile.
Outcome Claim::read_ahead()
{
    return runs_low() && pages_ == 0 ? read_on() : Outcome{};
}

Outcome Claim::read_on()
{
    if (!can_read_on())
        return {};
    ++pages_;
    return consumer_.partitions == 1 ? hand_out_page() : deal_page();
}

// Is it worth a row to remember how far this one has read, although it hands out nothing?
bool Claim::is_worth_remembering(const Page& page, Id known_before) const
{
    return page.is_worth_remembering() ||
           progress_.cursor.known_upto() - known_before >= worth_remembering;
}

// Straight to the caller, in one pass.
Outcome Claim::hand_out_page()
{
    Batch batch = {};
    batch.attempts = batch.deliveries = 1;
    pg::Growing<IdRange> ids;
    int handed_out = 0;
    const bool some_wait = consumer_.ordered && has_retries_ && has_parked(consumer_.id, 0);
    const Id known_before = progress_.cursor.known_upto();
    const Progress before = progress_;
    int64 limit = request_.batch_size;
    const Page page =
        read_page(progress_.cursor, consumer_.filter, limit, [&](const Message& message) {
            if (some_wait && must_wait(consumer_, 0, message, 0))
                return true;
            if (handed_out++ == 0)
                batch.token = batch.root = draw_tokens(1);
            append_to(ids, message.id());
            sink_.put(message, {batch.token, locked_until(), 1, false});
            if (sink_.is_full())
                limit = 0;
            return true;
        });
    at_end_ = page.at_end;
    if (handed_out == 0 && !is_worth_remembering(page, known_before)) {
        keep(before);
        return {};
    }
    batch.ids = ids.view();
    if (handed_out == 0)
        batch.token = batch.root = draw_tokens(1);
    const bool stays_open = handed_out > 0 && !request_.settle;
    const Progress after = stays_open ? progress_with({&batch.token, 1}) : progress_with({});
    if (stays_open) {
        const Holder holder = this->holder();
        add_newest_batch(consumer_.id, batch, &holder, after);
    } else {
        add_cursor(consumer_.id, batch, after);
    }
    keep(after);
    moved_ = true;
    return {handed_out, page.taken > 0};
}

Outcome Claim::deal_page()
{
    const Id known_before = progress_.cursor.known_upto();
    const Dealt dealt =
        read_and_deal(consumer_, leases_.view(), request_.batch_size, progress_.cursor);
    const std::size_t count = dealt.batches.size();
    if (count == 0 && !is_worth_remembering(dealt.page, known_before))
        return {};

    Batch batch = {};
    batch.token = batch.root = draw_tokens(Max(static_cast<int>(count), 1));
    batch.attempts = batch.deliveries = 1;
    pg::Growing<int64> tokens;
    for (std::size_t i = 0; i < count; ++i)
        tokens.push(batch.token + static_cast<int64>(i));
    const Progress progress = progress_with(tokens.view());
    if (count == 0)
        add_cursor(consumer_.id, batch, progress);
    for (std::size_t i = 0; i < count; ++i) {
        batch.token = batch.root = tokens[i];
        batch.partition = dealt.batches[i].partition;
        batch.ids = dealt.batches[i].ids;
        if (i + 1 < count)
            add_batch(consumer_.id, batch, nullptr);
        else
            add_newest_batch(consumer_.id, batch, nullptr, progress);
    }
    moved_ = true;
    pg::wake_at_commit();
    return {0, count > 0};
}

Progress Claim::progress_with(std::span<const int64> new_tokens, int64 without) const
{
    pg::Growing<int64> open;
    for (const Lease& lease : leases_)
        if (lease.token != without)
            open.push(lease.token);
    for (const int64 token : new_tokens)
        open.push(token);
    return {progress_.cursor, open.view()};
}

} // namespace

Claimed claim(const ClaimRequest& request, MessageSink& sink)
{
    Claim claim(request, sink);
    const int count = claim.run();
    // The commit of a claim lies behind every commit that it saw: once it is durable, so are they.
    // The relay sees to that by itself, before anything leaves.
    if (count > 0 && !request.settle && request.relay == nullptr)
        ForceSyncCommit();
    return {count, claim.has_all()};
}

} // namespace outbox
