// Limits of arguments. Intervals are in microseconds.
#pragma once

#include <cstdint>

namespace outbox::limits {

// Bytes in a name or key. Names are sent in headers, become topic names and are index keys, so the
// limit suits the strictest of these.
inline constexpr int max_name_bytes = 255;

inline constexpr int min_event_version = 1;
inline constexpr int max_event_version = 32767;

// Tenant of rows written without a tenant.
inline constexpr std::int64_t default_tenant = 0;

inline constexpr int max_consumer_name_bytes = 63;
inline constexpr int min_batch_size = 1;
inline constexpr int max_batch_size = 100000;
inline constexpr int max_partitions = 1024;
inline constexpr int max_attempts = 1000;

inline constexpr std::int64_t min_lease = 1'000'000;      // 1 second
inline constexpr std::int64_t max_lease = 86'400'000'000; // 1 day
inline constexpr std::int64_t max_retry_in = 365 * max_lease;

// Idempotency keys that one transaction may use. Each holds a heavyweight lock until the
// transaction ends, and all sessions share the lock table.
inline constexpr int max_open_attempts = 1000;

inline constexpr std::int64_t max_idempotency_ttl = 366 * max_lease;
inline constexpr std::int64_t max_wait = 3'600'000'000; // 1 hour
inline constexpr int min_status_code = 100;
inline constexpr int max_status_code = 599;

// Bytes stored of the text of an error; longer text is truncated.
inline constexpr int max_error_bytes = 4096;

// Bytes in the name that a worker passes to a claim.
inline constexpr int max_worker_bytes = 255;

} // namespace outbox::limits
