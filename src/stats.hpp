// What is counted, in shared memory: per consumer and per event type. Counts belong to a
// transaction and are added when it commits, by a callback that does nothing but add.
//
// There is a limited number of places; what has none is counted under `other`. Without shared
// memory, and with outbox.statistics off, nothing is counted.
#pragma once

#include "core/latency.hpp"
#include "pg/prelude.hpp"

#include <span>

namespace outbox::stats {

// The place of an event type. 0 is for all that have none of their own.
using TypePlace = uint16;

bool is_on();

// Of this database; it gets a place if there is one left. Cheap when it was asked for before.
TypePlace place_of(Datum event_type);

// What is to be known of an event that was handed out.
struct Facts {
    TypePlace type;
    uint32 bytes;
    TimestampTz occurred_at;
};

// ---- counting, in this transaction

void count_enqueued(Datum event_type, int count);
void count_delivered(int32 consumer, const Facts& event, TimestampTz now);
void count_failed(int32 consumer, Datum event_type, bool dead, Datum error);

// ---- batches of SQL workers, which are acked by their token alone

// Some of what is in a batch stands for all of it.
struct Summary {
    static constexpr int max_types = 8;
    static constexpr int samples = 8;

    uint32 count;
    uint64 bytes;
    struct {
        TypePlace type;
        uint32 count;
    } types[max_types]; // the last takes in what finds no place
    TimestampTz occurred_at[samples];
};

// Remembers it beyond the transaction, for as long as there are few others.
void remember_batch(int64 token, const Summary& summary);

// All of the batch was delivered. False if it is not remembered.
bool count_batch(int32 consumer, int64 token, TimestampTz now);

// Collects a summary on the way.
class Collector {
public:
    void add(const Facts& event);
    Summary summary() const;
    bool empty() const { return summary_.count == 0; }

private:
    Summary summary_ = {};
    int stride_ = 1; // every so many-th event is a sample
    int taken_ = 0;
    TimestampTz taken_at_[2 * Summary::samples];
};

// ---- looking

struct ConsumerCounts {
    int32 consumer; // 0: all that have no place
    uint64 delivered, failed, dead, bytes;
    double per_second; // over the last minute
    uint64 latency[latency::bucket_count];
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
inline constexpr int consumer_places = 256;
inline constexpr int type_places = 1024;

// Is there something that has found no place?
bool has_overflowed();

// Of this database: everything starts anew.
void reset();

void set_up();

} // namespace outbox::stats
