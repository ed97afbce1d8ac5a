// Looking at what a consumer would get, without claiming anything.
#pragma once

#include "claim.hpp"

namespace outbox {

// The messages that would come next. Call inside pg::as_owner().
int peek(Datum consumer, int max_rows, MessageSink& sink);

struct Readiness {
    bool ready;
    long look_again; // in milliseconds, at the latest, if nobody wakes us
};

// Would a claim find something? While another is claiming, it would not.
Readiness is_ready(Datum consumer);

} // namespace outbox
