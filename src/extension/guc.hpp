// The variables of the outbox.* GUCs. guc.cpp defines them, with their descriptions.
#pragma once

#include "pg/postgres.hpp"

#include <cstdint>
#include <optional>

namespace outbox::settings {

extern int dedup_window;     // seconds
extern int max_payload_size; // bytes
extern char* source;
extern bool statistics;

// The event catalog: registered event types, their schemas and pii_fields.
enum CatalogMode { catalog_off, catalog_warn, catalog_enforce };
enum PiiMode { pii_off, pii_strip, pii_refuse };
extern int catalog_mode;
extern int pii_mode;

// Defaults of a claim that does not specify them.
extern int batch_size;
extern int lease; // milliseconds

// Limit for one call of an upcaster.
extern int upcaster_timeout; // milliseconds

// Idempotency keys.
extern int idempotency_ttl;   // seconds
extern int idempotency_lease; // milliseconds
extern bool idempotency_required;

// Retry policy of consumers that do not set their own.
extern int max_attempts;
extern int immediate_retries;
extern int backoff_base; // milliseconds
extern int backoff_max;  // milliseconds
extern double backoff_jitter;

// The background workers.
extern bool relay;
extern char* databases;
extern int relay_memory;   // kilobytes
extern int relay_interval; // milliseconds
extern bool notify;
extern char* secrets_file;
extern char* http_allowed_hosts;
extern bool http_deny_private;

// Maintenance, retention and cold storage. Seconds; -1: forever.
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

// Returns outbox.tenant_id; std::nullopt if it is empty.
std::optional<std::int64_t> tenant_id() noexcept;

// Returns outbox.traceparent as text, in memory of the setting; std::nullopt if it is empty, longer
// than 512 bytes or not printable ASCII.
std::optional<Datum> session_traceparent() noexcept;

// Defines all outbox.* GUCs and reserves the prefix. Once, when the library is loaded.
// `check_hosts` returns false for an invalid value of outbox.http_allowed_hosts.
void define_gucs(bool (*check_hosts)(const char* list));

} // namespace outbox::settings
