#include "delivery/locked_batch.hpp"

#include "extension/guc.hpp"
#include "extension/owner_spi.hpp"
#include "extension/relations.hpp"
#include "extension/sqlstates.hpp"
#include "extension/tenant.hpp"
#include "ipc/worker_registry.hpp"
#include "pg/datum.hpp"
#include "pg/index_scan.hpp"

namespace outbox {

namespace {

[[noreturn]] void reject_token(int sqlstate, int64 token, const char* reason, const char* hint)
{
    ereport(ERROR, (errcode(sqlstate), errmsg("lock_token " INT64_FORMAT " %s", token, reason),
                    errhint("%s", hint)));
    pg_unreachable();
}

constexpr const char* lease_lost_hint = "Roll back what was done for this batch, and claim again.";

// Columns that are read by index, without the executor: one enum value per column.
constexpr pg::ColumnSpec lease_columns[] = {{"token", INT8OID},
                                            {"consumer_id", INT4OID},
                                            {"acked_at", TIMESTAMPTZOID},
                                            {"superseded_by", INT8OID},
                                            {"locked_until", TIMESTAMPTZOID},
                                            {"remaining", INT8MULTIRANGEOID},
                                            {"failed", INT8MULTIRANGEOID}};
enum : int { l_consumer = 1, l_acked_at, l_superseded_by, l_locked_until, l_remaining, l_failed };
using LeaseRow = pg::StoredRow<std::size(lease_columns)>;

constexpr pg::ColumnSpec batch_columns[] = {{"consumer_id", INT4OID},  {"token", INT8OID},
                                            {"partition", INT4OID},    {"attempts", INT4OID},
                                            {"deliveries", INT4OID},   {"from_retries", BOOLOID},
                                            {"ids", INT8MULTIRANGEOID}};
enum : int { b_partition = 2, b_attempts, b_deliveries, b_from_retries, b_ids };

constexpr pg::ColumnSpec consumer_columns[] = {{"consumer_id", INT4OID},
                                               {"name", TEXTOID},
                                               {"ordered", BOOLOID},
                                               {"kind", TEXTOID},
                                               {"tenant_id", INT8OID}};
enum : int { c_name = 1, c_ordered, c_kind, c_tenant_id };
using ConsumerRow = pg::StoredRow<std::size(consumer_columns)>;

// Raises token_unknown for an unassigned lease, and lease_lost for one that is superseded, settled
// or released. A lease that has expired, and was not taken over, is held.
void check_lease_is_held(int64 token, const LeaseRow& lease)
{
    const auto locked_until = lease.find(l_locked_until);
    if (!locked_until)
        reject_token(token_unknown, token, "is unknown", "It was never given out.");
    if (lease.find(l_superseded_by))
        reject_token(lease_lost, token, "has lost its lease: another worker has the batch now",
                     lease_lost_hint);
    if (lease.find(l_acked_at))
        reject_token(lease_lost, token, "has lost its lease: the whole batch is settled",
                     lease_lost_hint);
    if (DatumGetTimestampTz(*locked_until) == DT_NOBEGIN)
        reject_token(lease_lost, token, "has lost its lease: the batch was handed back",
                     lease_lost_hint);
}

[[noreturn]] void reject_unknown_token(int64 token)
{
    reject_token(token_unknown, token, "is unknown",
                 "It was never given out, its consumer is gone, or it was settled long ago.");
}

constinit pg::IndexedTable leases{lease_columns, 1};
constinit pg::IndexedTable consumers{consumer_columns, 1};

// Locks the row of the lease, waiting for other sessions. Returns std::nullopt if there is none.
std::optional<LeaseRow> lock_lease(Snapshot snapshot, int64 token)
{
    const pg::IndexKey by_token[] = {{INT8OID, Int64GetDatum(token)}};
    return leases.lock_first(extension_relations().leases, snapshot, by_token);
}

// Returns whether the session's tenant (outbox.tenant_id) may see the consumer.
bool is_visible_to_tenant(const ConsumerRow& consumer)
{
    const auto tenant = consumer.find(c_tenant_id);
    return can_see_tenant(tenant ? std::optional(DatumGetInt64(*tenant)) : std::nullopt);
}

// Raises token_unknown if the session's tenant may not see the token's consumer. Takes no row lock
// and precedes lock_lease(): a session that waited for the lock would learn that the token exists.
void reject_other_tenants(Snapshot snapshot, int64 token)
{
    const pg::IndexKey by_token[] = {{INT8OID, Int64GetDatum(token)}};
    const auto lease = leases.find_first(extension_relations().leases, snapshot, by_token);
    if (!lease)
        reject_unknown_token(token);
    const pg::IndexKey by_id[] = {{INT4OID, lease->get(l_consumer)}};
    const auto consumer = consumers.find_first(extension_relations().consumers, snapshot, by_id);
    if (!consumer || !is_visible_to_tenant(*consumer))
        reject_unknown_token(token);
}

// Does the work of lock_batch(), and raises its errors.
LockedBatch lock_batch_with_snapshot(Snapshot snapshot, int64 token)
{
    static constinit pg::IndexedTable batches{batch_columns, 2};
    if (settings::tenant_id())
        reject_other_tenants(snapshot, token);
    const auto lease = lock_lease(snapshot, token);
    if (!lease)
        reject_unknown_token(token);
    const pg::IndexKey keys[] = {{INT4OID, lease->get(l_consumer)},
                                 {INT8OID, Int64GetDatum(token)}};
    const auto batch = batches.find_first(extension_relations().batches, snapshot, keys);
    const auto consumer =
        consumers.find_first(extension_relations().consumers, snapshot, std::span(keys, 1));
    if (!batch || !consumer || !is_visible_to_tenant(*consumer))
        reject_unknown_token(token);
    if (pg::to_view(consumer->get(c_kind)) != "worker" && !ipc::is_relay())
        reject_token(token_unknown, token, "belongs to a sink",
                     "Leave it to the relay, which settles the batches of sinks.");
    check_lease_is_held(token, *lease);

    LockedBatch locked;
    locked.batch.token = token;
    locked.batch.root_token = 0;
    locked.batch.consumer_partition = DatumGetInt32(batch->get(b_partition));
    locked.batch.attempts = DatumGetInt32(batch->get(b_attempts));
    locked.batch.deliveries = DatumGetInt32(batch->get(b_deliveries));
    locked.batch.from_retries = DatumGetBool(batch->get(b_from_retries));
    locked.original_ids = pg::from_multirange(batch->get(b_ids));
    const auto remaining = lease->find(l_remaining);
    locked.batch.ids = remaining ? pg::from_multirange(*remaining) : locked.original_ids;
    const auto failed = lease->find(l_failed);
    locked.failed_ids = failed ? pg::from_multirange(*failed) : IdRanges{};
    locked.consumer = DatumGetInt32(lease->get(l_consumer));
    locked.consumer_name = consumer->get(c_name);
    locked.ordered = DatumGetBool(consumer->get(c_ordered));
    return locked;
}

} // namespace

LockedBatch lock_batch(int64 token)
{
    return pg::with_latest_snapshot(
        [&](Snapshot snapshot) { return lock_batch_with_snapshot(snapshot, token); });
}

void lock_held_lease(int64 token)
{
    const auto lease =
        pg::with_latest_snapshot([&](Snapshot snapshot) { return lock_lease(snapshot, token); });
    if (!lease)
        reject_unknown_token(token);
    check_lease_is_held(token, *lease);
}

IdRanges checked_ids(const LockedBatch& locked, std::span<const int64> ids)
{
    pg::PallocVector<IdRange> set;
    set.reserve(ids.size());
    for (const int64 id : ids) {
        if (!contains(locked.original_ids, id))
            ereport(ERROR, (errcode(id_not_in_batch),
                            errmsg("message " INT64_FORMAT
                                   " is not in the batch of lock_token " INT64_FORMAT,
                                   id, locked.batch.token)));
        if (contains(locked.failed_ids, id))
            ereport(ERROR,
                    (errcode(id_not_in_batch),
                     errmsg("message " INT64_FORMAT
                            " is no longer in the batch of lock_token " INT64_FORMAT,
                            id, locked.batch.token),
                     errdetail("It failed, or it waits behind an earlier message of its aggregate "
                               "that failed.")));
        set.push({id, id + 1});
    }
    set.set_size(merge_ranges(set.data(), set.size()));
    return set.view();
}

IdRanges subtract_ids(IdRanges set, IdRanges taken)
{
    pg::PallocVector<IdRange> rest;
    rest.reserve(set.size() + taken.size());
    rest.set_size(subtract(set, taken, rest.data()));
    return rest.view();
}

IdRanges intersect_ids(IdRanges set, IdRanges other)
{
    pg::PallocVector<IdRange> both;
    both.reserve(set.size() + other.size());
    both.set_size(intersect(set, other, both.data()));
    return both.view();
}

} // namespace outbox
