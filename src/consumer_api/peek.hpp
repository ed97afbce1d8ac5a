// Looking at what a consumer would get, without claiming anything.
#pragma once

#include "claim/claim.hpp"

namespace outbox {

// The messages that would come next. Call inside pg::as_owner().
void peek_messages(Datum consumer, int max_rows, MessageReceiver& receiver);

struct Readiness {
    bool ready;
    long recheck_after_ms; // in milliseconds, at the latest, if nobody wakes us
};

// Would a claim find something? While another is claiming, it would not.
Readiness check_readiness(Datum consumer);

struct OldestEvent {
    bool found;
    TimestampTz occurred_at;
    bool is_exact; // otherwise it may be one that the consumer does not want
};

// The oldest event that the consumer has yet to settle, retries aside. Reads little.
OldestEvent find_oldest_unsettled(Datum name);

} // namespace outbox
