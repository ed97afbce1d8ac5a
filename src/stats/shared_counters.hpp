// What is counted, in shared memory: per consumer and per event type, of all databases.
//
// There is a limited number of places; what has none is counted under `other`, in place 0. Without
// shared memory, and with outbox.statistics off, nothing is counted.
#pragma once

#include "core/latency_histogram.hpp"
#include "pg/postgres.hpp"

#include <span>

namespace outbox::stats {

inline constexpr int consumer_slots = 256;
inline constexpr int type_slots = 1024;

// The place of an event type.
using TypeSlotNumber = uint16;

bool is_enabled();

// Of this database; it gets a place if there is one left. Cheap when it was asked for before.
TypeSlotNumber type_slot_of(Datum event_type);
int consumer_slot_of(int32 consumer);

// ---- adding. These cannot fail.

struct TypeDelta {
    TypeSlotNumber type;
    uint64 enqueued, delivered, failed, dead;
};

struct ConsumerDelta {
    int slot;
    uint64 delivered, failed, dead, bytes;
    uint64 latency_sum; // microseconds
    uint32 latency[latency::bucket_count];
};

void add(const TypeDelta& delta);
void add(const ConsumerDelta& delta, TimestampTz now);

void record_error(int consumer_slot, Datum error);

// ---- looking

struct ConsumerCounts {
    int32 consumer; // 0: all that have no place
    uint64 delivered, failed, dead, bytes;
    double per_second; // over the last minute
    uint64 latency[latency::bucket_count];
    uint64 latency_sum; // microseconds
    TimestampTz since;
    TimestampTz last_error_at; // 0: there was none
    char last_error[256];
};

struct TypeCounts {
    char name[256]; // in the database's encoding; empty: all that have no place
    uint64 enqueued, delivered, failed, dead;
    TimestampTz since;
};

// Of this database. False: there is none with this number.
bool read_consumer_counts(int number, ConsumerCounts& counts);
bool read_type_counts(int number, TypeCounts& counts);

// Is there something that has found no place?
bool has_overflowed();

// ---- looking after it

// Of this database: everything starts anew.
void reset_counters();

// The places of databases that are gone, and of all consumers of this database but these.
void free_unused_slots(std::span<const int32> consumers);

void set_up_shared_counters();

} // namespace outbox::stats
