#pragma once

#include <cstdint>

namespace outbox::limits {

// Names travel in headers, topics and index keys: short enough for all of them.
inline constexpr int max_name_bytes = 255;

inline constexpr int min_event_version = 1;
inline constexpr int max_event_version = 32767;

inline constexpr std::int64_t default_tenant = 0;

inline constexpr int max_consumer_name_bytes = 63;
inline constexpr int min_batch_size = 1;
inline constexpr int max_batch_size = 100000;
inline constexpr int max_partitions = 1024;
inline constexpr int max_attempts = 1000;

inline constexpr std::int64_t min_lease = 1'000'000;      // microseconds: a second
inline constexpr std::int64_t max_lease = 86'400'000'000; // a day
inline constexpr std::int64_t max_retry_in = 365 * max_lease;

// Each holds a lock until the end of its transaction, and locks are shared by all sessions.
inline constexpr int max_open_attempts = 1000;

inline constexpr std::int64_t max_idempotency_ttl = 366 * max_lease;
inline constexpr std::int64_t max_wait = 3'600'000'000; // an hour
inline constexpr int min_status_code = 100;
inline constexpr int max_status_code = 599;

// What is kept of an error's text, in bytes.
inline constexpr int max_error_bytes = 4096;

// A worker's name for itself, in bytes.
inline constexpr int max_worker_bytes = 255;

} // namespace outbox::limits
