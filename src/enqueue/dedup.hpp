// Deduplication: an enqueue whose dedup_key was used within outbox.dedup_window returns the
// tracking_id of the first event.
#pragma once

#include "log/event.hpp"

namespace outbox {

// Claims the event's dedup_key in _outbox.dedup_keys, under RowExclusiveLock until the transaction
// ends. Returns std::nullopt if the event is the first with this key and must be enqueued,
// otherwise the tracking_id of the earlier event. Waits for a transaction in progress that has
// claimed the key. Can raise serialization_failure under REPEATABLE READ and SERIALIZABLE.
std::optional<pg_uuid_t> claim_dedup_key(const Event& event, TimestampTz now);

} // namespace outbox
