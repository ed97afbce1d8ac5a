// Batches and their leases. A batch is never updated; the newest one of a consumer carries its
// cursor and the tokens of all that is not settled. Its lease is the small row that changes.
//
// All of this inside pg::as_owner(), and with snapshots taken after the locks that matter.
#pragma once

#include "consumer/consumer.hpp"
#include "extension/owner_spi.hpp"

namespace outbox {

struct Batch {
    int64 token;
    int32 consumer_partition;
    int64 root_token; // of the batch that it descends from: the order in a consumer partition
    IdRanges ids;
    int32 attempts;   // that hand-outs of these messages count as, with the next or present one
    int32 deliveries; // how often they have been handed out, with the next or present one
    bool from_retries;
    std::optional<int64> tenant = std::nullopt; // whose messages these are, if the consumer is fair
};

// A lease that is neither settled nor taken over.
struct Lease {
    int64 token;
    int64 root_token; // as in the batch
    int32 consumer_partition;
    int32 message_count; // of its batch
    TimestampTz locked_until;
    bool is_unassigned; // waits for its first worker, and has no locked_until
    std::optional<int64> tenant = std::nullopt; // as in the batch

    bool is_live(TimestampTz now) const { return !is_unassigned && locked_until >= now; }
    bool has_expired(TimestampTz now) const { return !is_unassigned && locked_until < now; }
};

// Who holds a lease, and for how long.
struct LeaseHolder {
    Datum worker;
    TimestampTz claimed_at;
    int64 lease; // microseconds
};

// Those of the tokens that are open, in the order in which their messages are to be handled.
pg::PallocVector<Lease> open_leases(std::span<const int64> tokens);

// Of one consumer: no more is read while there are as many.
inline constexpr std::size_t max_open_leases = 5000;

// Could anybody take what would be read? A consumer that keeps order reads on only while a
// partition has nothing in hand and nothing waiting, and none piles up without limit for one that
// stands still.
bool may_read_new(const Consumer& consumer, std::span<const Lease> leases);

// Is an unfinished transaction settling this lease, taking it over or picking it up?
bool is_lease_being_changed(int64 token);

// Adds a batch with its lease; without a holder it is dealt.
void add_batch(int32 consumer, const Batch& batch, const LeaseHolder* holder);

// The same for the newest batch of a consumer, which says where the consumer is.
void add_newest_batch(int32 consumer, const Batch& batch, const LeaseHolder* holder,
                      const Progress& progress);

// A row that is nothing but the consumer's cursor, or records what was settled when it was read.
void add_cursor_row(int32 consumer, const Batch& batch, const Progress& progress);

// What is left of a batch, without a lock on anything.
std::optional<Batch> read_open_batch(int64 token);

// What was read and is not settled, as of one moment: a batch that another has replaced is there,
// or that other. What is tried again is a copy, and not among it.
class UnsettledBatches {
public:
    explicit UnsettledBatches(int32 consumer);

    // The next one, which stays good until the one after it.
    std::optional<Batch> next();

private:
    pg::PallocVector<ResultRow> rows_;
    std::size_t next_row_ = 0;
    MemoryContext batch_memory_; // they may be thousands, with a thousand runs each
};

// The first id of all of them.
std::optional<Id> min_unsettled_id(int32 consumer);

// What is left of a batch whose lease has expired or waits, with the lease locked for taking it
// over. Nothing if somebody else was faster.
std::optional<Batch> lock_batch_for_takeover(int64 token, TimestampTz now);

// Marks the lease as taken over by another token.
void supersede_lease(int64 token, int64 successor);

// Gives a dealt batch to its first worker. Nothing if somebody else was faster.
std::optional<Batch> assign_batch_to_worker(int64 token, const LeaseHolder& holder);

// Ends a lease: everything in its batch is settled.
void settle_lease(int64 token, TimestampTz now);

// Takes ids out of a batch that failed or wait behind one that failed.
void remove_from_batch(int64 token, IdRanges remaining, IdRanges failed);

} // namespace outbox
