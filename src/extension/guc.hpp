// The outbox.* settings: each has one variable, here, and one description, in guc.cpp.
#pragma once

#include "pg/postgres.hpp"

#include <cstdint>
#include <optional>

namespace outbox::settings {

extern int dedup_window;     // seconds
extern int max_payload_size; // bytes
extern char* source;
extern bool statistics;

// The catalog of events.
enum CatalogMode { catalog_off, catalog_warn, catalog_enforce };
enum PiiMode { pii_off, pii_strip, pii_refuse };
extern int catalog_mode;
extern int pii_mode;

// What a claim gets when it does not say.
extern int batch_size;
extern int lease; // milliseconds

// How long an upcaster may take with one event.
extern int upcaster_timeout; // milliseconds

// Idempotency keys.
extern int idempotency_ttl;   // seconds
extern int idempotency_lease; // milliseconds
extern bool idempotency_required;

// The retry policy of consumers that have none of their own.
extern int max_attempts;
extern int immediate_retries;
extern int backoff_base; // milliseconds
extern int backoff_max;  // milliseconds
extern double backoff_jitter;

// The relay.
extern bool relay;
extern char* databases;
extern int relay_memory;   // kilobytes
extern int relay_interval; // milliseconds
extern bool notify;
extern char* secrets_file;
extern char* http_allowed_hosts;
extern bool http_deny_private;

// What is kept for how long, and where it goes. Seconds; -1: for ever.
extern int maintenance_interval;
extern int hot_retention;
extern int archive_retention;
extern int cold_retention;
extern int delivery_retention;
extern int inbox_retention;
extern int stats_retention;
extern int audit_retention;
extern char* cold_storage_dir;
extern char* archive_command;

// What outbox.tenant_id says; nothing when it is not set.
std::optional<std::int64_t> tenant_id() noexcept;

// What outbox.traceparent says, as text; nothing when it is not set.
std::optional<Datum> session_traceparent() noexcept;

// `check_hosts` judges outbox.http_allowed_hosts.
void define_gucs(bool (*check_hosts)(const char* list));

} // namespace outbox::settings
