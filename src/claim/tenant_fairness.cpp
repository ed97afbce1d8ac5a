#include "claim/claim_internal.hpp"

#include "extension/fencing_token.hpp"
#include "extension/owner_spi.hpp"
#include "ipc/wakeup.hpp"
#include "pg/datum.hpp"

extern "C" {
#include "utils/hsearch.h"
}

#include <algorithm>
#include <ranges>

// A fair consumer reads everything that is new before it hands out anything, and puts the ids of
// each tenant aside, as batches that wait. So it costs one pass over a backlog of millions to find
// what is behind it, and as a backlog is mostly one run of ids, little to remember. Then tenants
// take turns: whoever was served longest ago comes next. It reads again when each of them has had
// one: if every claim read, each would put aside a batch for every tenant, and take away one.
// What comes for a tenant that has something waiting is merged with that: a tenant that brings more
// than is served would otherwise have one batch more with every round, and every claim looks at
// all. Where so many tenants have something waiting that no more batches may be open, it still
// reads far enough to meet others than those who bring most.

namespace outbox {

// What is to wait for its tenant's turn.
struct TenantQueueEntry {
    Batch batch;
    bool is_first;                  // of this tenant, of what was read
    pg::PallocVector<int64> merged; // tokens of what waited, and is now part of it
};

namespace {

// What one claim reads at most: some seconds. The next one goes on.
constexpr int64 most_read = 5'000'000;

// A batch that waits is cut when its turn comes, and the rest is written anew: it must not be
// large.
constexpr std::size_t most_runs = 1000;

// What was merged is smaller: it would be cut for ever, and with fewer runs hardly more batches
// wait.
constexpr std::size_t most_merged_runs = 250;

// So many batches may be put aside, even if nearly as many wait as may be open.
constexpr std::size_t least_room = 1000;

struct Pile {
    int64 tenant; // the key
    pg::PallocVector<IdRange> ids;
    bool is_rest; // something of this tenant was set aside before
};

// What was read, by tenant.
class Piles {
public:
    Piles()
    {
        HASHCTL shape = {};
        shape.keysize = sizeof(int64);
        shape.entrysize = sizeof(Pile);
        shape.hcxt = CurrentMemoryContext;
        piles_ = hash_create("tenants", 256, &shape, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
    }

    void put(const Message& message)
    {
        const int64 tenant = DatumGetInt64(message.values[col_tenant_id]);
        bool found;
        auto* pile = static_cast<Pile*>(hash_search(piles_, &tenant, HASH_ENTER, &found));
        if (!found) {
            pile->ids = {};
            pile->is_rest = false;
        }
        append_to(pile->ids, message.id());
        if (pile->ids.size() == most_runs)
            set_aside(*pile);
    }

    // How many batches they make, or a few less.
    std::size_t count() const
    {
        return asides_.size() + static_cast<std::size_t>(hash_get_num_entries(piles_));
    }

    // In the order of the log.
    pg::PallocVector<TenantQueueEntry> take()
    {
        HASH_SEQ_STATUS all;
        hash_seq_init(&all, piles_);
        while (auto* pile = static_cast<Pile*>(hash_seq_search(&all)))
            if (!pile->ids.empty())
                set_aside(*pile);
        std::ranges::sort(asides_, {},
                          [](const TenantQueueEntry& a) { return a.batch.ids.front().from; });
        return asides_;
    }

private:
    void set_aside(Pile& pile)
    {
        Batch batch = {};
        batch.attempts = batch.deliveries = 1;
        // Each of several pages has its own stragglers.
        pile.ids.set_size(normalize(pile.ids.data(), pile.ids.size()));
        batch.ids = pile.ids.view();
        batch.tenant = pile.tenant;
        asides_.push({batch, !pile.is_rest, {}});
        pile.ids = {};
        pile.is_rest = true;
    }

    HTAB* piles_;
    pg::PallocVector<TenantQueueEntry> asides_;
};

// Of a tenant that has something waiting.
struct Turn {
    int64 tenant;
    int64 served; // a token of the time when it was; 0: never
};

int64 tenant_of(const Lease& lease)
{
    return lease.tenant.value_or(limits::default_tenant);
}

pg::PallocVector<int64> waiting_tenants(std::span<const Lease> leases)
{
    pg::PallocVector<int64> tenants;
    for (const Lease& lease : leases)
        if (lease.is_unassigned)
            tenants.push(tenant_of(lease));
    std::ranges::sort(tenants);
    tenants.set_size(
        static_cast<std::size_t>(std::ranges::unique(tenants).begin() - tenants.begin()));
    return tenants;
}

pg::PallocVector<Turn> turns_of(int32 consumer, std::span<const int64> tenants)
{
    static constinit pg::Statement find{
        "SELECT w.tenant_id, coalesce(t.served, 0) FROM unnest($2) w (tenant_id)"
        " LEFT JOIN LATERAL (SELECT o.served FROM _outbox.tenant_turns o"
        " WHERE o.consumer_id = $1 AND o.tenant_id = w.tenant_id"
        " ORDER BY o.served DESC LIMIT 1) t ON true ORDER BY 2, 1",
        {INT4OID, INT8ARRAYOID}};
    const Datum values[] = {Int32GetDatum(consumer), pg::to_bigint_array(tenants)};
    const uint64 count = find.execute_with_latest_snapshot(values);
    pg::PallocVector<Turn> turns;
    for (uint64 i = 0; i < count; ++i)
        turns.push({DatumGetInt64(pg::Row(i).get(1)), DatumGetInt64(pg::Row(i).get(2))});
    return turns;
}

// Has every tenant had a turn since something was put aside for it? What is cut from a batch
// descends from when that was.
bool is_round_over(std::span<const Lease> leases, pg::PallocVector<Turn> turns)
{
    std::ranges::sort(turns, {}, &Turn::tenant);
    return std::ranges::none_of(leases, [&](const Lease& lease) {
        return lease.is_unassigned &&
               std::ranges::lower_bound(turns, tenant_of(lease), {}, &Turn::tenant)->served <
                   lease.root;
    });
}

// Does it wait as it was put aside, of one tenant and at its first attempt?
bool is_untouched(const Lease& lease)
{
    return lease.is_unassigned && lease.tenant && lease.token == lease.root;
}

// Merges what waits last for a tenant into what has come for it, unless it is much larger: so of
// what is small there are as many batches as its number has digits, and each id is written anew as
// often at most. None gets larger than what can be read at once.
void merge_what_waits(TenantQueueEntry& aside, std::span<const Lease> leases, TimestampTz now,
                      MemoryContext one_batch)
{
    const MemoryContext caller = CurrentMemoryContext;
    pg::PallocVector<IdRange> ids;
    for (const IdRange& range : aside.batch.ids)
        ids.push(range);
    for (const Lease& lease : std::views::reverse(leases)) {
        if (!lease.is_unassigned || tenant_of(lease) != aside.batch.tenant)
            continue;
        const int64 size = count_ids(ids.view());
        if (!is_untouched(lease) || lease.size > 2 * size || lease.size + size > most_read)
            break;
        MemoryContextReset(one_batch);
        MemoryContextSwitchTo(one_batch);
        // Only who has the consumer's lock changes what waits: what is too much need not be locked.
        const auto there = look_at(lease.token);
        const bool fits = there && ids.size() + there->ids.size() <= most_merged_runs;
        const auto waiting = fits ? lock_for_takeover(lease.token, now) : std::nullopt;
        MemoryContextSwitchTo(caller);
        if (!waiting)
            break;
        for (const IdRange& range : waiting->ids)
            ids.push(range);
        ids.set_size(normalize(ids.data(), ids.size()));
        aside.merged.push(lease.token);
    }
    aside.batch.ids = ids.view();
}

void note_turn(int32 consumer, int64 tenant, int64 token)
{
    static constinit pg::Statement note{
        "INSERT INTO _outbox.tenant_turns (consumer_id, tenant_id, served) VALUES ($1, $2, $3)",
        {INT4OID, INT8OID, INT8OID}};
    const Datum values[] = {Int32GetDatum(consumer), Int64GetDatum(tenant), Int64GetDatum(token)};
    note.execute_with_latest_snapshot(values);
}

} // namespace

ClaimOutcome Claim::distribute_to_tenants()
{
    if (pages_++ > 0 || !may_read_on(consumer_, leases_.view()))
        return {};
    const pg::PallocVector<int64> waiting = waiting_tenants(leases_.view());
    if (!waiting.empty() && !is_round_over(leases_.view(), turns_of(consumer_.id, waiting.view())))
        return {};
    const Id known_before = progress_.cursor.known_upto();
    Piles piles;
    const std::size_t room = Max(max_open_leases - leases_.size(), least_room);
    int64 limit = PG_INT64_MAX;
    Page all;
    while (!all.at_end && limit > 0 && all.examined < most_read) {
        CHECK_FOR_INTERRUPTS();
        const Page page = read_page(progress_.cursor, consumer_.filter, limit, reading_budget,
                                    [&](const Message& message) {
                                        piles.put(message);
                                        if (piles.count() >= room)
                                            limit = 0;
                                        return true;
                                    });
        all.examined += page.examined;
        all.taken += page.taken;
        all.at_end = page.at_end || page.examined == 0;
    }
    more_ = !all.at_end;
    pg::PallocVector<TenantQueueEntry> asides = piles.take();
    if (asides.empty() && !is_worth_remembering(all, known_before))
        return {};
    queue_by_tenant(asides);
    moved_ = true;
    pg::wake_at_commit();
    return {0, !asides.empty()};
}

void Claim::queue_by_tenant(pg::PallocVector<TenantQueueEntry>& asides)
{
    const std::size_t count = asides.size();
    int64 token = draw_tokens(Max(static_cast<int>(count), 1));
    pg::PallocVector<int64> tokens;
    pg::PallocVector<int64> merged;
    const MemoryContext one_batch =
        AllocSetContextCreate(CurrentMemoryContext, "outbox batch", ALLOCSET_DEFAULT_SIZES);
    for (TenantQueueEntry& aside : asides) {
        aside.batch.token = aside.batch.root = token;
        tokens.push(token++);
        if (aside.is_first)
            merge_what_waits(aside, leases_.view(), now_, one_batch);
        for (const int64 taken_over : aside.merged) {
            supersede(taken_over, aside.batch.token);
            merged.push(taken_over);
        }
    }
    std::ranges::sort(merged);
    const Progress progress = progress_with(tokens.view(), merged.view());
    if (count == 0) {
        Batch none = {};
        none.token = none.root = token;
        add_cursor(consumer_.id, none, progress);
    }
    for (std::size_t i = 0; i < count; ++i)
        if (i + 1 < count)
            add_batch(consumer_.id, asides[i].batch, nullptr);
        else
            add_newest_batch(consumer_.id, asides[i].batch, nullptr, progress);
}

ClaimOutcome Claim::serve_next_tenant()
{
    const pg::PallocVector<int64> tenants = waiting_tenants(leases_.view());
    if (tenants.empty())
        return {};
    const pg::PallocVector<Lease> candidates = leases_;
    for (const Turn& turn : turns_of(consumer_.id, tenants.view()))
        for (const Lease& lease : candidates) {
            if (!lease.is_unassigned || tenant_of(lease) != turn.tenant)
                continue;
            ClaimOutcome outcome;
            if (lease.size > request_.batch_size) {
                if (const auto batch = lock_for_takeover(lease.token, now_))
                    outcome = take_over(*batch, lease);
            } else if (const auto batch = pick_up(lease.token, holder())) {
                outcome = {pass_on(*batch), true};
            }
            if (outcome.changed) {
                note_turn(consumer_.id, turn.tenant, draw_tokens(1));
                moved_ = true;
                return outcome;
            }
        }
    return {};
}

} // namespace outbox
