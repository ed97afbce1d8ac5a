// Counters in shared memory, per consumer and per event type, for all databases of the server.
//
// The number of slots is fixed. Keys without a slot share slot 0, shown as `other`. Counters are
// atomics; adding a key and reading or writing an error text takes the LWLock ipc::shmem_lock().
// Without shared memory, or with outbox.statistics off, is_enabled() is false and the caller counts
// nothing.
#pragma once

#include "core/latency_histogram.hpp"
#include "pg/postgres.hpp"

#include <span>

namespace outbox::stats {

inline constexpr int consumer_slots = 256; // slot 0 included
inline constexpr int type_slots = 1024;    // slot 0 included

// Index of the slot of an event type.
using TypeSlotNumber = uint16;

// Returns true if there is shared memory and outbox.statistics is on.
bool is_enabled();

// Return the slot of an event type or consumer of this database. A new key gets a free slot, under
// ipc::shmem_lock(), or slot 0 if none is left. Event types are cached per backend. The caller has
// checked is_enabled().
TypeSlotNumber type_slot_of(Datum event_type);
int consumer_slot_of(int32 consumer);

// ---- Adding. These functions raise no error, so that xact callbacks may call them after commit.

// Counts to add to the slot of an event type.
struct TypeDelta {
    TypeSlotNumber type;
    uint64 enqueued, delivered, failed, dead;
};

// Counts to add to the slot of a consumer.
struct ConsumerDelta {
    int slot;
    uint64 delivered, failed, dead, bytes;
    uint64 latency_sum; // microseconds
    uint32 latency[latency::bucket_count];
};

// Adds the counts to the slot of an event type in shared memory, without a lock.
void add(const TypeDelta& delta);

// Adds the counts to the slot of a consumer in shared memory, without a lock. `now` selects the
// bucket of the rate.
void add(const ConsumerDelta& delta, TimestampTz now);

// Stores the text of a consumer's latest error, truncated, under ipc::shmem_lock(). A rollback does
// not undo it.
void record_error(int consumer_slot, Datum error);

// ---- Reading

// A copy of the counters of a consumer.
struct ConsumerCounts {
    int32 consumer; // 0: all consumers without a slot
    uint64 delivered, failed, dead, bytes;
    double per_second; // delivered events per second, average of the last minute
    uint64 latency[latency::bucket_count];
    uint64 latency_sum;        // microseconds
    TimestampTz since;         // last reset, or when the slot was assigned
    TimestampTz last_error_at; // 0: no error
    char last_error[256];
};

// A copy of the counters of an event type.
struct TypeCounts {
    char name[256]; // in the database encoding; empty: all event types without a slot
    uint64 enqueued, delivered, failed, dead;
    TimestampTz since;
};

// Copy the counters of a slot. Return false if the slot belongs to no key of this database; for
// slot 0, if it counted nothing.
bool read_consumer_counts(int number, ConsumerCounts& counts);
bool read_type_counts(int number, TypeCounts& counts);

// Returns true if any key was counted in slot 0 since the server started.
bool has_overflowed();

// ---- Maintenance

// Sets the counters of all slots of this database to 0 at once, except the rates of consumers.
// Keeps the last errors. Slot 0, which all databases share, is not reset.
void reset_counters();

// Frees the slots of dropped databases, and of the consumers of this database that are not in
// `consumers`.
void free_unused_slots(std::span<const int32> consumers);

// Requests the shared memory. Called once, when the library is loaded.
void set_up_shared_counters();

} // namespace outbox::stats
