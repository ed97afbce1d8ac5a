#include "claim.hpp"

#include "page.hpp"
#include "pg/key_lock.hpp"
#include "pg/pause.hpp"
#include "pg/spi.hpp"
#include "pg/values.hpp"
#include "pg/wake.hpp"
#include "retries.hpp"

namespace outbox {

namespace {

constexpr int lock_patience = 100; // milliseconds

// A page is read once and dealt into batches; more than this is not worth the memory.
constexpr int64 max_page = 20000;

// Batches that wait for a worker. A partition that stands still would gather more and more of them.
constexpr std::size_t max_dealt = 1000;

struct Outcome {
    int handed_out = 0;
    bool changed = false; // something was settled or moved: it is worth looking again
};

class Claim {
public:
    Claim(const ClaimRequest& request, MessageSink& sink) : request_(request), sink_(sink) {}

    int run();

private:
    // Reads consumer, cursor and leases anew.
    void refresh();

    // The work a claim can find, in the order in which it looks.
    Outcome take_over_expired();
    Outcome hand_out_retries();
    Outcome pick_up_dealt();
    Outcome read_on();

    Outcome take_over(const Batch& batch, const Lease& lease);
    Outcome hand_out_page();
    Outcome deal_page();
    int hand_out(const Batch& batch);
    int hand_out_from_log(const Batch& batch);
    int hand_out_from_retries(const Batch& batch);
    bool dies(const Batch& batch, const Lease& lease);
    bool must_wait(const Message& message, int32 partition, int failures);

    bool enter(int32 partition);
    bool is_busy(int32 partition) const;
    const Lease* first_of(int32 partition) const;
    bool can_read_on();
    Progress progress_with(std::span<const int64> new_tokens, int64 without = 0) const;
    Holder holder() const { return {request_.worker, now_, request_.lease}; }
    Delivery delivery(int64 token, int attempts) const
    {
        return {token, now_ + request_.lease, attempts};
    }

    const ClaimRequest& request_;
    MessageSink& sink_;
    Consumer consumer_ = {};
    Progress progress_ = {};
    pg::Growing<Lease> leases_;
    TimestampTz now_ = 0;
    bool locked_ = false; // the consumer's lock is ours
    bool moved_ = false;  // and must stay ours, because the consumer has a new newest batch
};

int Claim::run()
{
    refresh();
    if (consumer_.is_sink)
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("this consumer is a sink, which the relay serves"),
                        errhint("Create a consumer of your own for the same events.")));
    if (consumer_.paused)
        return 0;

    // What others have dealt can be had without the lock.
    if (consumer_.partitions > 1)
        if (const Outcome outcome = pick_up_dealt(); outcome.handed_out > 0)
            return outcome.handed_out;

    if (!pg::lock_consumer(consumer_.id, lock_patience))
        return 0;
    locked_ = true;
    pg::pause_at("lock");
    constexpr Outcome (Claim::*steps[])() = {&Claim::take_over_expired, &Claim::hand_out_retries,
                                             &Claim::pick_up_dealt, &Claim::read_on};
    for (bool changed = true; changed;) {
        CHECK_FOR_INTERRUPTS();
        changed = false;
        refresh();
        for (const auto step : steps) {
            const Outcome outcome = (this->*step)();
            if (outcome.handed_out > 0)
                return outcome.handed_out;
            changed = outcome.changed;
            if (changed)
                break;
        }
    }
    return 0;
}

void Claim::refresh()
{
    const ConsumerState state = read_consumer(request_.consumer);
    consumer_ = state.consumer;
    progress_ = state.progress;
    leases_ = open_leases(progress_.open_tokens);
    now_ = GetCurrentTimestamp();
}

// ---- partitions of ordered consumers: one open batch at a time

// The lock first, and then a new look: another may have handed out from this partition just before.
bool Claim::enter(int32 partition)
{
    if (!consumer_.ordered)
        return true;
    if (!pg::try_lock_partition(consumer_.id, partition))
        return false;
    refresh();
    return true;
}

bool Claim::is_busy(int32 partition) const
{
    for (const Lease& lease : leases_)
        if (lease.partition == partition && !lease.dealt)
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
    std::size_t dealt = 0;
    for (const Lease& lease : leases_)
        dealt += lease.dealt;
    if (dealt > max_dealt)
        return false;
    if (!consumer_.ordered)
        return true;
    if (consumer_.partitions == 1)
        return enter(0) && first_of(0) == nullptr;
    for (int32 partition = 0; partition < consumer_.partitions; ++partition)
        if (first_of(partition) == nullptr)
            return true;
    return false;
}

// ---- what was handed out before

Outcome Claim::take_over_expired()
{
    const pg::Growing<Lease> candidates = leases_;
    for (const Lease& lease : candidates) {
        if (!lease.has_expired(now_) || !enter(lease.partition))
            continue;
        if (const auto batch = lock_for_takeover(lease.token, now_))
            return take_over(*batch, lease);
    }
    return {};
}

// A message that was alone in its batch when its worker vanished, for the last time.
bool Claim::dies(const Batch& batch, const Lease& lease)
{
    if (lease.dealt || lease.locked_until == DT_NOBEGIN || lease.size != 1 || consumer_.is_sink)
        return false;
    const Datum error = PointerGetDatum(
        cstring_to_text("the lease expired: the worker died, hung, or was too slow"));
    const auto bury_if_due = [&](const Message* message, int failures) {
        const int attempts = failures + batch.attempts;
        if (message == nullptr || attempts < consumer_.policy.max_attempts)
            return false;
        bury(consumer_.id, *message, attempts, error, now_);
        return true;
    };
    bool dead;
    if (batch.from_retries) {
        RetryScan scan(consumer_.id, batch.ids);
        const Message* message = scan.next();
        dead = bury_if_due(message, scan.failures());
        if (dead)
            remove_retries(consumer_.id, consumer_.ordered, batch.partition, batch.ids, now_);
    } else {
        OpenLog log = open_log_for_reading();
        const Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
        IdScan scan(log, snapshot, batch.ids);
        dead = bury_if_due(scan.next(), 0);
        scan.close();
        UnregisterSnapshot(snapshot);
        close_log(log);
    }
    return dead;
}

// The same ids under a new token. A batch that has expired before is split, so that a message that
// kills its workers is alone in the end.
Outcome Claim::take_over(const Batch& batch, const Lease& lease)
{
    constexpr int tries_before_split = 2;
    if (dies(batch, lease)) {
        take_out(batch.token, {}, batch.ids);
        settle_lease(batch.token, now_);
        return {0, true};
    }

    const bool counts = !lease.dealt && lease.locked_until != DT_NOBEGIN;
    const Id size = count_ids(batch.ids);
    Id first_size = Min(size, static_cast<Id>(request_.batch_size));
    if (counts && batch.deliveries >= tries_before_split)
        first_size = Min(first_size, (size + 1) / 2);

    Batch parts[2] = {batch, batch};
    pg::Growing<IdRange> ids[2];
    ids[0].reserve(batch.ids.size());
    ids[0].set_size(take_first(batch.ids, first_size, ids[0].data()));
    ids[1].reserve(batch.ids.size() * 2);
    ids[1].set_size(subtract(batch.ids, ids[0].view(), ids[1].data()));
    const int count = ids[1].empty() ? 1 : 2;
    const int64 first = draw_tokens(count);
    const int64 tokens[2] = {first, first + 1};
    for (int i = 0; i < count; ++i) {
        parts[i].token = tokens[i];
        parts[i].ids = ids[i].view();
        parts[i].attempts += counts;
        parts[i].deliveries += !lease.dealt;
    }
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
    return {hand_out(parts[0]), true};
}

Outcome Claim::hand_out_retries()
{
    Batch batch = {};
    if (!consumer_.ordered) {
        batch.ids = due_retries(consumer_.id, progress_.open_tokens, now_, request_.batch_size);
    } else {
        for (const int32 partition : due_partitions(consumer_.id, now_)) {
            if (!enter(partition) || is_busy(partition))
                continue;
            batch.partition = partition;
            batch.ids = due_chains(consumer_.id, partition, now_, request_.batch_size);
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
    return {hand_out(batch), true};
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
            if (locked_ && !moved_) {
                pg::unlock_consumer(consumer_.id);
                locked_ = false;
            }
            return {hand_out(*batch), locked_};
        }
    }
    return {};
}

// ---- handing out a batch that exists

bool Claim::must_wait(const Message& message, int32 partition, int failures)
{
    if (!is_parked(consumer_.id, message))
        return false;
    park(consumer_.id, partition, message, failures);
    return true;
}

int Claim::hand_out_from_retries(const Batch& batch)
{
    int count = 0;
    RetryScan scan(consumer_.id, batch.ids);
    while (const Message* message = scan.next()) {
        sink_.put(*message, delivery(batch.token, scan.failures() + batch.attempts));
        ++count;
    }
    return count;
}

int Claim::hand_out_from_log(const Batch& batch)
{
    int count = 0;
    pg::Growing<IdRange> waiting;
    const bool some_wait = consumer_.ordered && has_parked(consumer_.id, batch.partition);
    OpenLog log = open_log_for_reading();
    const Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
    IdScan scan(log, snapshot, batch.ids);
    while (const Message* message = scan.next()) {
        if (some_wait && must_wait(*message, batch.partition, batch.attempts - 1)) {
            waiting.reserve(waiting.size() + 1);
            waiting.set_size(append_id(waiting.data(), waiting.size(), message->id()));
            continue;
        }
        sink_.put(*message, delivery(batch.token, batch.attempts));
        ++count;
    }
    scan.close();
    UnregisterSnapshot(snapshot);
    close_log(log);

    if (!waiting.empty()) {
        pg::Growing<IdRange> rest;
        rest.reserve(batch.ids.size() + waiting.size());
        rest.set_size(subtract(batch.ids, waiting.view(), rest.data()));
        take_out(batch.token, rest.view(), waiting.view());
    }
    return count;
}

int Claim::hand_out(const Batch& batch)
{
    const int count = batch.from_retries ? hand_out_from_retries(batch) : hand_out_from_log(batch);
    if (request_.settle && batch.from_retries)
        remove_retries(consumer_.id, consumer_.ordered, batch.partition, batch.ids, now_);
    // Nothing is left when all of it waits behind others, or has left the log.
    if (request_.settle || count == 0)
        settle_lease(batch.token, now_);
    return count;
}

// ---- what is new

Outcome Claim::read_on()
{
    if (!can_read_on())
        return {};
    return consumer_.partitions == 1 ? hand_out_page() : deal_page();
}

// Straight to the caller, in one pass.
Outcome Claim::hand_out_page()
{
    Batch batch = {};
    batch.attempts = batch.deliveries = 1;
    pg::Growing<IdRange> ids;
    bool parked = false;
    const bool some_wait = consumer_.ordered && has_parked(consumer_.id, 0);
    const Page page = read_page(progress_.cursor, consumer_.filter, request_.batch_size,
                                [&](const Message& message) {
                                    if (some_wait && must_wait(message, 0, 0)) {
                                        parked = true;
                                        return false;
                                    }
                                    if (ids.empty())
                                        batch.token = batch.root = draw_tokens(1);
                                    ids.reserve(ids.size() + 1);
                                    ids.set_size(append_id(ids.data(), ids.size(), message.id()));
                                    sink_.put(message, delivery(batch.token, 1));
                                    return true;
                                });
    batch.ids = ids.view();

    if (page.taken == 0) {
        if (!parked && !page.is_worth_remembering())
            return {};
        batch.token = batch.root = draw_tokens(1);
        add_cursor(consumer_.id, batch, progress_with({}));
    } else if (request_.settle) {
        add_cursor(consumer_.id, batch, progress_with({}));
    } else {
        const Holder holder = this->holder();
        add_newest_batch(consumer_.id, batch, &holder, progress_with({&batch.token, 1}));
    }
    moved_ = true;
    return {static_cast<int>(page.taken), parked};
}

// Without order, a page is cut into pieces of the size that was asked for; with order, by
// aggregate, until the first partition has that many.
Outcome Claim::deal_page()
{
    const auto places = static_cast<std::size_t>(consumer_.partitions);
    auto* dealt =
        static_cast<pg::Growing<IdRange>*>(palloc0(sizeof(pg::Growing<IdRange>) * places));
    auto* sizes = static_cast<int64*>(palloc0(sizeof(int64) * places));
    int64 taken = 0;
    int64 limit = Min(static_cast<int64>(request_.batch_size) * consumer_.partitions, max_page);
    const Page page =
        read_page(progress_.cursor, consumer_.filter, limit, [&](const Message& message) {
            const int64 place =
                consumer_.ordered ? consumer_.partition_of(message) : taken / request_.batch_size;
            pg::Growing<IdRange>& ids = dealt[place];
            ids.reserve(ids.size() + 1);
            ids.set_size(append_id(ids.data(), ids.size(), message.id()));
            ++taken;
            if (++sizes[place] == request_.batch_size && consumer_.ordered)
                limit = taken;
            return true;
        });

    pg::Growing<int64> tokens;
    for (std::size_t place = 0; place < places; ++place)
        if (!dealt[place].empty())
            tokens.push(0);
    if (!page.is_worth_remembering())
        return {};
    const int64 first = draw_tokens(Max(static_cast<int>(tokens.size()), 1));
    for (std::size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = first + static_cast<int64>(i);

    Batch batch = {};
    batch.token = batch.root = first;
    batch.attempts = batch.deliveries = 1;
    const Progress progress = progress_with(tokens.view());
    std::size_t done = 0;
    for (std::size_t place = 0; place < places; ++place) {
        if (dealt[place].empty())
            continue;
        batch.token = batch.root = tokens[done++];
        batch.partition = static_cast<int32>(place);
        batch.ids = dealt[place].view();
        if (done < tokens.size())
            add_batch(consumer_.id, batch, nullptr);
        else
            add_newest_batch(consumer_.id, batch, nullptr, progress);
    }
    if (tokens.empty())
        add_cursor(consumer_.id, batch, progress);
    moved_ = true;
    pg::wake_at_commit();
    return {0, !tokens.empty()};
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

int claim(const ClaimRequest& request, MessageSink& sink)
{
    Claim claim(request, sink);
    const int count = claim.run();
    // The commit of a claim lies behind every commit that it saw: once it is durable, so are they.
    if (count > 0 && !request.settle)
        ForceSyncCommit();
    return count;
}

} // namespace outbox
