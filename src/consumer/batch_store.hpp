// Rows of _outbox.batches and _outbox.leases. A batch is never updated; the newest one of a
// consumer has its cursor and the tokens of all open batches. The lease is the small row of a batch
// that is updated.
//
// Call everything here inside as_owner(). Statements take a new snapshot, so call them after taking
// the locks that they rely on.
#pragma once

#include "consumer/consumer.hpp"
#include "extension/owner_spi.hpp"

namespace outbox {

// Messages of one consumer that are delivered under one fencing token, or their unsettled rest.
struct Batch {
    int64 token;
    int32 consumer_partition;
    int64 root_token; // batch that was split or taken over; orders a consumer partition
    IdRanges ids;
    int32 attempts;   // charged to each message, including the current or next delivery
    int32 deliveries; // of these messages, including the current or next one
    bool from_retries;
    std::optional<int64> tenant = std::nullopt; // of all messages, if the consumer is fair
};

// A lease that is neither settled nor superseded.
struct Lease {
    int64 token;
    int64 root_token; // as in the batch
    int32 consumer_partition;
    int32 message_count; // of its batch
    TimestampTz locked_until;
    bool is_unassigned;                         // waits for its first worker; locked_until is NULL
    std::optional<int64> tenant = std::nullopt; // as in the batch

    bool is_live(TimestampTz now) const { return !is_unassigned && locked_until >= now; }
    bool has_expired(TimestampTz now) const { return !is_unassigned && locked_until < now; }
};

// The worker that gets a lease, and the lease's time.
struct LeaseHolder {
    Datum worker;
    TimestampTz claimed_at;
    int64 lease; // microseconds
};

// Returns the open leases of these tokens, ordered by root_token and first id: the order in which
// their messages must be processed.
pg::PallocVector<Lease> open_leases(std::span<const int64> tokens);

// With this many open leases a consumer reads no new messages. Each of its batch rows has the
// tokens of all of them.
inline constexpr std::size_t max_open_leases = 5000;

// Returns whether reading more of the log makes sense: false if max_open_leases are open or, for an
// ordered consumer that is no sink, if every consumer partition already has a batch.
bool may_read_new(const Consumer& consumer, std::span<const Lease> leases);

// Returns whether a transaction in progress is settling, superseding or assigning this lease. Reads
// the row with a dirty snapshot and takes no row lock.
bool is_lease_being_changed(int64 token);

// Inserts a batch and its lease. Without a holder the batch is unassigned.
void add_batch(int32 consumer, const Batch& batch, const LeaseHolder* holder);

// Inserts the newest batch of a consumer, with its progress, and the lease. Without a holder the
// batch is unassigned. The caller holds the consumer's lock.
void add_newest_batch(int32 consumer, const Batch& batch, const LeaseHolder* holder,
                      const Progress& progress);

// Inserts a newest batch without a lease: it has only the cursor, or its messages were settled in
// the same transaction. The caller holds the consumer's lock.
void add_cursor_row(int32 consumer, const Batch& batch, const Progress& progress);

// Returns the unsettled rest of an open batch, without locking it. std::nullopt: it is settled or
// superseded.
std::optional<Batch> read_open_batch(int64 token);

// Iterates over the unsettled batches of a consumer under one snapshot: of a batch and its
// replacement exactly one is seen. Batches of retries are skipped, because their messages are
// copies.
class UnsettledBatches {
public:
    // Reads all rows at once. They stay in SPI's memory.
    explicit UnsettledBatches(int32 consumer);

    // Returns std::nullopt at the end. The batch is valid until the next call.
    std::optional<Batch> next();

private:
    pg::PallocVector<ResultRow> rows_;
    std::size_t next_row_ = 0;
    MemoryContext batch_memory_; // reset by next(): thousands may have 1000 id ranges
};

// Returns the least id of the unsettled batches of a consumer, without batches of retries.
// std::nullopt: there are none.
std::optional<Id> min_unsettled_id(int32 consumer);

// Locks the lease's row if the lease has expired or is unassigned, and returns the unsettled rest
// of the batch. std::nullopt: another session holds the row lock, or the lease has changed.
std::optional<Batch> lock_batch_for_takeover(int64 token, TimestampTz now);

// Marks the lease as superseded by the batch `successor`. The caller has locked or inserted its
// row.
void supersede_lease(int64 token, int64 successor);

// Gives an unassigned batch to its first worker and returns it. std::nullopt: another session holds
// the row lock, or the batch is no longer unassigned.
std::optional<Batch> assign_batch_to_worker(int64 token, const LeaseHolder& holder);

// Marks the lease as settled: no message of its batch remains. The caller has locked or inserted
// its row.
void settle_lease(int64 token, TimestampTz now);

// Stores the unsettled rest of a batch in its lease. `failed` has the ids that leave it because
// they failed, or are blocked behind a failed one; they are added to those stored before.
void remove_from_batch(int64 token, IdRanges remaining, IdRanges failed);

} // namespace outbox
