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

// A fair consumer reads all new messages before it delivers any, and stores the ids of each tenant
// as unassigned batches. One pass over a backlog of millions thus finds the tenants behind it; the
// backlog of one tenant is mostly one run of ids, which takes little room.
//
// Then tenants take turns: the tenant served longest ago is next (_outbox.tenant_turns). The
// log is read again when each tenant has had its turn. If every claim read, each would store a
// batch for every tenant and take away one.
//
// New ids of a tenant are merged with its unassigned batches. Otherwise a tenant that produces more
// than is consumed would gain a batch per round, and every claim reads the leases of all batches.
// If max_open_leases is nearly reached, a claim still reads far enough to find tenants other than
// the ones that produce most.

namespace outbox {

// A new batch that will wait for its tenant's turn.
struct TenantQueueEntry {
    Batch batch;
    bool is_first;                         // first batch of its tenant in this claim
    pg::PallocVector<int64> merged_tokens; // unassigned batches that were merged into it
};

namespace {

// Rows that one claim reads, which takes some seconds. The next claim continues.
constexpr int64 max_rows_per_claim = 5'000'000;

// Ranges of ids per batch: it is split at its turn and the rest is written again, so it must not be
// large.
constexpr std::size_t max_runs_per_batch = 1000;

// Ranges of ids in a merged batch. Lower than for a new one: merging up to that limit would split
// and rewrite large batches in every round, and would hardly save batches.
constexpr std::size_t max_runs_after_merge = 250;

// Batches that a claim may add even if max_open_leases is nearly reached.
constexpr std::size_t min_new_batches = 1000;

struct TenantIds {
    int64 tenant; // the key
    pg::PallocVector<IdRange> ids;
    bool is_continuation; // this claim has already made a batch of this tenant
};

// Ids by tenant, collected while the log is read.
class IdsByTenant {
public:
    IdsByTenant()
    {
        HASHCTL shape = {};
        shape.keysize = sizeof(int64);
        shape.entrysize = sizeof(TenantIds);
        shape.hcxt = CurrentMemoryContext;
        table_ = hash_create("tenants", 256, &shape, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
    }

    // Adds the id to those of its tenant. Makes a batch of them when max_runs_per_batch is reached.
    void add(const Message& message)
    {
        const int64 tenant = DatumGetInt64(message.values[col_tenant_id]);
        bool found;
        auto* tenant_ids =
            static_cast<TenantIds*>(hash_search(table_, &tenant, HASH_ENTER, &found));
        if (!found) {
            tenant_ids->ids = {};
            tenant_ids->is_continuation = false;
        }
        append_id(tenant_ids->ids, message.id());
        if (tenant_ids->ids.size() == max_runs_per_batch)
            close_entry(*tenant_ids);
    }

    // Returns the number of batches so far; entries without ids are counted, too.
    std::size_t count() const
    {
        return entries_.size() + static_cast<std::size_t>(hash_get_num_entries(table_));
    }

    // Returns the batches, without tokens, in the order of their first ids.
    pg::PallocVector<TenantQueueEntry> take_entries()
    {
        HASH_SEQ_STATUS all;
        hash_seq_init(&all, table_);
        while (auto* tenant_ids = static_cast<TenantIds*>(hash_seq_search(&all)))
            if (!tenant_ids->ids.empty())
                close_entry(*tenant_ids);
        std::ranges::sort(entries_, {},
                          [](const TenantQueueEntry& a) { return a.batch.ids.front().from; });
        return entries_;
    }

private:
    // Moves the collected ids of the tenant into a new batch.
    void close_entry(TenantIds& tenant_ids)
    {
        Batch batch = {};
        batch.attempts = batch.deliveries = 1;
        // Late commits of a later page may have smaller ids.
        tenant_ids.ids.set_size(merge_ranges(tenant_ids.ids.data(), tenant_ids.ids.size()));
        batch.ids = tenant_ids.ids.view();
        batch.tenant = tenant_ids.tenant;
        entries_.push({batch, !tenant_ids.is_continuation, {}});
        tenant_ids.ids = {};
        tenant_ids.is_continuation = true;
    }

    HTAB* table_;
    pg::PallocVector<TenantQueueEntry> entries_;
};

// A tenant with unassigned batches.
struct TenantTurn {
    int64 tenant;
    int64 served_token; // drawn at its last turn: orders turns among each other; 0: never
};

// Returns the tenant of the batch; limits::default_tenant if the batch has none.
int64 tenant_of(const Lease& lease)
{
    return lease.tenant.value_or(limits::default_tenant);
}

// Returns the tenants of the unassigned batches, ascending, each once.
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

// Reads the last turn of each tenant from _outbox.tenant_turns, the one served longest ago first.
pg::PallocVector<TenantTurn> read_turns(int32 consumer, std::span<const int64> tenants)
{
    static constinit Statement find{
        "SELECT w.tenant_id, coalesce(t.served, 0) FROM unnest($2) w (tenant_id)"
        " LEFT JOIN LATERAL (SELECT o.served FROM _outbox.tenant_turns o"
        " WHERE o.consumer_id = $1 AND o.tenant_id = w.tenant_id"
        " ORDER BY o.served DESC LIMIT 1) t ON true ORDER BY 2, 1",
        {INT4OID, INT8ARRAYOID}};
    const Datum values[] = {Int32GetDatum(consumer), pg::to_bigint_array(tenants)};
    const uint64 count = find.execute_with_latest_snapshot(values);
    pg::PallocVector<TenantTurn> turns;
    for (uint64 i = 0; i < count; ++i)
        turns.push({DatumGetInt64(ResultRow(i).get(1)), DatumGetInt64(ResultRow(i).get(2))});
    return turns;
}

// Returns whether every tenant has had a turn since its batches were stored. Parts of a split batch
// keep its root token, and with it the time.
bool is_round_over(std::span<const Lease> leases, pg::PallocVector<TenantTurn> turns)
{
    std::ranges::sort(turns, {}, &TenantTurn::tenant);
    return std::ranges::none_of(leases, [&](const Lease& lease) {
        return lease.is_unassigned &&
               std::ranges::lower_bound(turns, tenant_of(lease), {}, &TenantTurn::tenant)
                       ->served_token < lease.root_token;
    });
}

// Returns whether the batch is as it was first stored: one tenant, first attempt.
bool is_unsplit(const Lease& lease)
{
    return lease.is_unassigned && lease.tenant && lease.token == lease.root_token;
}

// Merges the tenant's newest unassigned batches into the new one while they are at most twice its
// size (LSM-style). A tenant thus has O(log n) unassigned batches, and each id is rewritten O(log
// n) times. No batch exceeds max_rows_per_claim. Locks the leases of the merged batches and adds
// their tokens to the entry; the caller supersedes them. `batch_memory` is scratch.
void merge_waiting_batches(TenantQueueEntry& entry, std::span<const Lease> leases, TimestampTz now,
                           MemoryContext batch_memory)
{
    const MemoryContext caller = CurrentMemoryContext;
    pg::PallocVector<IdRange> ids;
    for (const IdRange& range : entry.batch.ids)
        ids.push(range);
    for (const Lease& lease : std::views::reverse(leases)) {
        if (!lease.is_unassigned || tenant_of(lease) != entry.batch.tenant)
            continue;
        const int64 size = count_ids(ids.view());
        if (!is_unsplit(lease) || lease.message_count > 2 * size ||
            lease.message_count + size > max_rows_per_claim)
            break;
        MemoryContextReset(batch_memory);
        MemoryContextSwitchTo(batch_memory);
        // Unassigned batches of a fair consumer change under the consumer's lock only, which this
        // claim holds. So a batch that is too large need not be locked to be read.
        const auto stored = read_open_batch(lease.token);
        const bool fits = stored && ids.size() + stored->ids.size() <= max_runs_after_merge;
        const auto waiting = fits ? lock_batch_for_takeover(lease.token, now) : std::nullopt;
        MemoryContextSwitchTo(caller);
        if (!waiting)
            break;
        for (const IdRange& range : waiting->ids)
            ids.push(range);
        ids.set_size(merge_ranges(ids.data(), ids.size()));
        entry.merged_tokens.push(lease.token);
    }
    entry.batch.ids = ids.view();
}

// Inserts into _outbox.tenant_turns; of two turns the one with the higher token is later.
void record_turn(int32 consumer, int64 tenant, int64 token)
{
    static constinit Statement note{
        "INSERT INTO _outbox.tenant_turns (consumer_id, tenant_id, served) VALUES ($1, $2, $3)",
        {INT4OID, INT8OID, INT8OID}};
    const Datum values[] = {Int32GetDatum(consumer), Int64GetDatum(tenant), Int64GetDatum(token)};
    note.execute_with_latest_snapshot(values);
}

} // namespace

ClaimStepResult Claim::distribute_to_tenants()
{
    if (pages_read_++ > 0 || !may_read_new(consumer_, leases_.view()))
        return {};
    const pg::PallocVector<int64> waiting = waiting_tenants(leases_.view());
    if (!waiting.empty() &&
        !is_round_over(leases_.view(), read_turns(consumer_.id, waiting.view())))
        return {};
    const Id known_upto_before = progress_.cursor.known_upto();
    IdsByTenant ids_by_tenant;
    const std::size_t max_new_batches = Max(max_open_leases - leases_.size(), min_new_batches);
    int64 limit = PG_INT64_MAX;
    PageResult all;
    while (!all.at_end && limit > 0 && all.examined < max_rows_per_claim) {
        CHECK_FOR_INTERRUPTS();
        const PageResult page = read_page(progress_.cursor, consumer_.filter, limit,
                                          max_rows_examined, [&](const Message& message) {
                                              ids_by_tenant.add(message);
                                              if (ids_by_tenant.count() >= max_new_batches)
                                                  limit = 0;
                                              return true;
                                          });
        all.examined += page.examined;
        all.accepted += page.accepted;
        all.at_end = page.at_end || page.examined == 0;
    }
    has_more_ = !all.at_end;
    pg::PallocVector<TenantQueueEntry> entries = ids_by_tenant.take_entries();
    if (entries.empty() && !should_save_cursor(all, known_upto_before))
        return {};
    queue_by_tenant(entries);
    appended_batch_ = true;
    ipc::wake_all_at_commit();
    return {0, !entries.empty()};
}

void Claim::queue_by_tenant(pg::PallocVector<TenantQueueEntry>& entries)
{
    const std::size_t count = entries.size();
    int64 token = draw_tokens(Max(static_cast<int>(count), 1));
    pg::PallocVector<int64> tokens;
    pg::PallocVector<int64> merged_tokens;
    const MemoryContext batch_memory =
        AllocSetContextCreate(CurrentMemoryContext, "outbox batch", ALLOCSET_DEFAULT_SIZES);
    for (TenantQueueEntry& entry : entries) {
        entry.batch.token = entry.batch.root_token = token;
        tokens.push(token++);
        if (entry.is_first)
            merge_waiting_batches(entry, leases_.view(), now_, batch_memory);
        for (const int64 taken_over : entry.merged_tokens) {
            supersede_lease(taken_over, entry.batch.token);
            merged_tokens.push(taken_over);
        }
    }
    std::ranges::sort(merged_tokens);
    const Progress progress = progress_with(tokens.view(), merged_tokens.view());
    if (count == 0) {
        Batch none = {};
        none.token = none.root_token = token;
        add_cursor_row(consumer_.id, none, progress);
    }
    for (std::size_t i = 0; i < count; ++i)
        if (i + 1 < count)
            add_batch(consumer_.id, entries[i].batch, nullptr);
        else
            add_newest_batch(consumer_.id, entries[i].batch, nullptr, progress);
}

ClaimStepResult Claim::deliver_next_tenant()
{
    const pg::PallocVector<int64> tenants = waiting_tenants(leases_.view());
    if (tenants.empty())
        return {};
    const pg::PallocVector<Lease> candidates = leases_;
    for (const TenantTurn& turn : read_turns(consumer_.id, tenants.view()))
        for (const Lease& lease : candidates) {
            if (!lease.is_unassigned || tenant_of(lease) != turn.tenant)
                continue;
            ClaimStepResult outcome;
            if (lease.message_count > request_.batch_size) {
                if (const auto batch = lock_batch_for_takeover(lease.token, now_))
                    outcome = take_over_batch(*batch, lease);
            } else if (const auto batch = assign_batch_to_worker(lease.token, holder())) {
                outcome = {deliver(*batch), true};
            }
            if (outcome.changed) {
                record_turn(consumer_.id, turn.tenant, draw_tokens(1));
                appended_batch_ = true;
                return outcome;
            }
        }
    return {};
}

} // namespace outbox
