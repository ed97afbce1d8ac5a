// dedup_key: the second enqueue with the same key is told what the first one got.
#pragma once

#include "log/event.hpp"

namespace outbox {

// Claims the event's dedup_key for it. Empty: the event is the first with this key and is to be
// enqueued. Otherwise the tracking_id of the event that was. Waits for a transaction that has
// claimed the key and not ended yet.
std::optional<pg_uuid_t> claim_dedup_key(const Event& event, TimestampTz now);

} // namespace outbox
