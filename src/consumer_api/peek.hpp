// Reads what a consumer would get, without claiming it. Call everything here inside as_owner(). It
// takes AccessShareLock on the log and its partitions, and keeps no lock on the consumer.
#pragma once

#include "claim/claim.hpp"

namespace outbox {

// Passes up to max_rows messages to the receiver, upcast, in the order in which claims would
// deliver them. Leaves out messages that cannot be upcast. Raises undefined_object like
// read_consumer().
void peek_messages(Datum consumer, int max_rows, MessageReceiver& receiver);

// Whether a claim would find messages.
struct Readiness {
    bool ready;
    long recheck_after_ms; // maximum time to wait for a wake-up before the next check
};

// Returns whether a claim would find messages now. It would not while another session holds the
// consumer's lock; this takes the locks of consumer and consumer partitions briefly.
Readiness check_readiness(Datum consumer);

// The result of find_oldest_unsettled().
struct OldestEvent {
    bool found;
    TimestampTz occurred_at;
    bool is_exact; // false: the consumer's filter may reject the event
};

// Returns the oldest event that the consumer has not settled, apart from retries. Examines at most
// 1000 rows of the log after the cursor.
OldestEvent find_oldest_unsettled(Datum name);

} // namespace outbox
