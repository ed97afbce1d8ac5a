#include "extension/guc.hpp"

#include "core/limits.hpp"
#include "core/parse_number.hpp"
#include "pg/injection_point.hpp"

#include <algorithm>
#include <climits>
#include <cstring>

namespace outbox::settings {

int dedup_window;
int max_payload_size;
char* source;
bool statistics;
// A server with assertions insists that enums have their defaults from the start.
int catalog_mode = catalog_off;
int pii_mode = pii_strip;
int batch_size;
int lease;
int upcaster_timeout;
int idempotency_ttl;
int idempotency_lease;
bool idempotency_required;
int max_attempts;
int immediate_retries;
int backoff_base;
int backoff_max;
double backoff_jitter;
bool relay;
char* databases;
int relay_memory;
int relay_interval;
bool notify;
char* secrets_file;
char* http_allowed_hosts;
bool http_deny_private;
int maintenance_interval;
int hot_retention;
int archive_retention;
int cold_retention;
int delivery_retention;
int inbox_retention;
int stats_retention;
int audit_retention;
char* cold_storage_dir;
char* archive_command;

namespace {

// Only its name is ever asked for, in pg_partman's own terms.
enum PartitionInterval { hourly, daily, weekly, monthly };
int partition_interval = daily;

// Only registration asks for it, in SQL.
char* event_name_pattern;

char* tenant_text;
const std::int64_t* tenant_value;

char* traceparent_text;
const struct varlena* traceparent_value;

const config_enum_entry partition_intervals[] = {
    {"hourly", hourly, false},   {"daily", daily, false}, {"weekly", weekly, false},
    {"monthly", monthly, false}, {nullptr, 0, false},
};

const config_enum_entry catalog_modes[] = {
    {"off", catalog_off, false},
    {"warn", catalog_warn, false},
    {"enforce", catalog_enforce, false},
    {nullptr, 0, false},
};

const config_enum_entry pii_modes[] = {
    {"off", pii_off, false},
    {"strip", pii_strip, false},
    {"refuse", pii_refuse, false},
    {nullptr, 0, false},
};

bool check_tenant(char** text, void** extra, GucSource)
{
    if (**text == '\0')
        return true;
    const auto value = parse_bigint(*text);
    if (!value) {
        GUC_check_errdetail("A tenant is a bigint; an empty value means that none is set.");
        return false;
    }
    auto* parsed = static_cast<std::int64_t*>(pg::alloc_guc_extra(sizeof(std::int64_t)));
    if (parsed == nullptr)
        return false;
    *parsed = *value;
    *extra = parsed; // owned and freed by the server
    return true;
}

void assign_tenant(const char*, void* extra)
{
    tenant_value = static_cast<const std::int64_t*>(extra);
}

// Whoever passes on what came with a request must not fail for it: what cannot be a traceparent is
// dropped. It may come in any encoding, so nothing but ASCII gets further.
bool check_traceparent(char** given, void** extra, GucSource)
{
    constexpr std::size_t max_length = 512;
    const std::size_t size = std::strlen(*given);
    const bool is_printable_ascii =
        std::all_of(*given, *given + size, [](char c) { return c > ' ' && c < 0x7F; });
    if (size == 0 || size > max_length || !is_printable_ascii)
        return true;
    auto* text = static_cast<struct varlena*>(pg::alloc_guc_extra(VARHDRSZ + size));
    if (text == nullptr)
        return false;
    SET_VARSIZE(text, VARHDRSZ + size);
    std::memcpy(VARDATA(text), *given, size);
    *extra = text; // owned and freed by the server
    return true;
}

void assign_traceparent(const char*, void* extra)
{
    traceparent_value = static_cast<const struct varlena*>(extra);
}

// How consumers read and try again.
void define_consumer_gucs()
{
    constexpr int second = 1000;
    constexpr int day = 24 * 60 * 60 * second;

    DefineCustomIntVariable("outbox.batch_size", "How many events a claim takes at most.",
                            "Used when the call does not say.", &batch_size, 100,
                            limits::min_batch_size, limits::max_batch_size, PGC_USERSET, 0, nullptr,
                            nullptr, nullptr);
    DefineCustomIntVariable("outbox.lease", "How long a claimed batch belongs to its worker.",
                            "Used when the call does not say; a heartbeat starts it anew.", &lease,
                            30 * second, second, day, PGC_USERSET, GUC_UNIT_MS, nullptr, nullptr,
                            nullptr);
    DefineCustomIntVariable("outbox.upcaster_timeout",
                            "How long an upcaster may take with one event.",
                            "Then the event has failed.", &upcaster_timeout, second, 10,
                            60 * 60 * second, PGC_USERSET, GUC_UNIT_MS, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("outbox.max_attempts",
                            "After how many attempts an event becomes a dead letter.",
                            "For consumers that have no number of their own.", &max_attempts, 10, 1,
                            limits::max_attempts, PGC_SUSET, 0, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("outbox.immediate_retries",
                            "How many failures of an event are followed by a retry at once.",
                            "For consumers that have no number of their own.", &immediate_retries,
                            3, 0, limits::max_attempts, PGC_SUSET, 0, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("outbox.backoff_base",
                            "The first pause before a retry; it doubles with every failure.",
                            "For consumers that have none of their own.", &backoff_base, second, 1,
                            day, PGC_SUSET, GUC_UNIT_MS, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("outbox.backoff_max", "The longest pause before a retry.",
                            "For consumers that have none of their own.", &backoff_max,
                            15 * 60 * second, 1, day, PGC_SUSET, GUC_UNIT_MS, nullptr, nullptr,
                            nullptr);
    DefineCustomRealVariable("outbox.backoff_jitter",
                             "The part of a pause that chance may take away.",
                             "For consumers that have none of their own.", &backoff_jitter, 0.5, 0,
                             1, PGC_SUSET, 0, nullptr, nullptr, nullptr);
}

// A rule that producers may switch off is none.
void define_event_catalog_gucs()
{
    DefineCustomEnumVariable("outbox.catalog_mode",
                             "Whether events must be registered and fit their schema.",
                             "With warn they need not, but there is a warning.", &catalog_mode,
                             catalog_off, catalog_modes, PGC_SUSET, 0, nullptr, nullptr, nullptr);
    DefineCustomEnumVariable(
        "outbox.pii_mode", "What becomes of the pii_fields of an event that is registered.",
        "They are taken out of the payload, or the event is refused. Not "
        "while outbox.catalog_mode is off.",
        &pii_mode, pii_strip, pii_modes, PGC_SUSET, 0, nullptr, nullptr, nullptr);
    DefineCustomStringVariable(
        "outbox.event_name_pattern", "A regular expression that new names of events must match.",
        "Empty: any name.", &event_name_pattern, "", PGC_SUSET, 0, nullptr, nullptr, nullptr);
}

void define_idempotency_gucs()
{
    constexpr int second = 1000;
    constexpr int day = 24 * 60 * 60;

    DefineCustomIntVariable("outbox.idempotency_ttl",
                            "How long the answer to an idempotency key is kept.",
                            "Used when the call does not say.", &idempotency_ttl, day, 1, 366 * day,
                            PGC_USERSET, GUC_UNIT_S, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("outbox.idempotency_lease",
                            "How long a key belongs to an attempt that was begun and committed.",
                            "Then another attempt may take it over. Used when the call does not "
                            "say.",
                            &idempotency_lease, 60 * second, second, day * second, PGC_USERSET,
                            GUC_UNIT_MS, nullptr, nullptr, nullptr);
    DefineCustomBoolVariable("outbox.idempotency_required",
                             "Whether a call without an idempotency key is an error.",
                             "For scopes of which idempotency_required() says nothing.",
                             &idempotency_required, true, PGC_SUSET, 0, nullptr, nullptr, nullptr);
}

bool check_directory(char** path, void**, GucSource)
{
    if (**path == '\0' || is_absolute_path(*path))
        return true;
    GUC_check_errdetail("It must be an absolute path.");
    return false;
}

// How the tables are kept small. One rule for all, so none of this is a session's to change.
void define_maintenance_gucs()
{
    constexpr int minute = 60;
    constexpr int day = 24 * 60 * minute;
    const auto define_seconds = [](const char* name, const char* what, const char* more,
                                   int* variable, int value, int min) {
        DefineCustomIntVariable(name, what, more, variable, value, min, INT_MAX, PGC_SIGHUP,
                                GUC_UNIT_S, nullptr, nullptr, nullptr);
    };
    define_seconds(
        "outbox.maintenance_interval", "How often a worker makes partitions, archives and prunes.",
        "The first time is when the server starts.", &maintenance_interval, 5 * minute, 1);
    define_seconds("outbox.hot_retention",
                   "How old events are when they leave the log for the archive.",
                   "They do so by whole partitions, and not before every consumer has passed them.",
                   &hot_retention, 7 * day, 0);
    define_seconds("outbox.archive_retention", "How old events are when they leave the archive.",
                   "-1 keeps them for ever.", &archive_retention, 90 * day, -1);
    define_seconds("outbox.cold_retention",
                   "How old events are when their file in cold storage is removed.",
                   "-1 keeps them for ever.", &cold_retention, -1, -1);
    define_seconds("outbox.delivery_retention",
                   "How long the record of settled deliveries is kept.",
                   "It is for people: nothing else needs it.", &delivery_retention, day, 0);
    define_seconds("outbox.inbox_retention", "How long inbox_accept() remembers an event.",
                   "Longer than any event can take to come again.", &inbox_retention, 30 * day, 0);
    define_seconds("outbox.stats_retention", "How long outbox_report can look back.",
                   "0: nothing is remembered.", &stats_retention, 7 * day, 0);
    define_seconds(
        "outbox.audit_retention", "How old rows of the audit log are when they are removed.",
        "For entity types of which audit_set_retention() says nothing. -1 keeps them for ever.",
        &audit_retention, 2 * 365 * day, -1);
    DefineCustomStringVariable("outbox.cold_storage_dir",
                               "Where partitions are exported to before they are dropped.",
                               "Empty: nowhere.", &cold_storage_dir, "", PGC_SIGHUP,
                               GUC_SUPERUSER_ONLY, check_directory, nullptr, nullptr);
    DefineCustomStringVariable(
        "outbox.archive_command", "A shell command for each file that was exported.",
        "%f is its path, %t the table, %d the day. Unless it exits with 0, nothing is dropped.",
        &archive_command, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY, nullptr, nullptr, nullptr);
}

bool (*check_hosts)(const char* list);

bool check_allowed_hosts(char** list, void**, GucSource)
{
    if (check_hosts(*list))
        return true;
    GUC_check_errdetail("A list of hosts such as example.org, *.example.org, [::1]:8080.");
    return false;
}

// The background workers. None of this is a session's to change.
void define_relay_gucs()
{
    constexpr int second = 1000;
    constexpr int hour = 60 * 60 * second;

    DefineCustomBoolVariable("outbox.relay", "Whether background workers serve the databases.",
                             "Without them nothing goes to sinks, and scheduled events wait.",
                             &relay, true, PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
    DefineCustomStringVariable("outbox.databases", "The databases that background workers serve.",
                               "A list of names; empty: all that have the extension.", &databases,
                               "", PGC_SIGHUP, GUC_LIST_INPUT, nullptr, nullptr, nullptr);
    DefineCustomIntVariable(
        "outbox.relay_memory", "How much memory the events take that a worker has in hand.",
        "All sinks of a database have an equal share of it.", &relay_memory, 64 * 1024, 1024,
        MAX_KILOBYTES, PGC_SIGHUP, GUC_UNIT_KB, nullptr, nullptr, nullptr);
    DefineCustomIntVariable(
        "outbox.relay_interval", "How often a worker looks around without being called.",
        "Commits call it, so this is for what nobody could tell it.", &relay_interval, 5 * second,
        100, 24 * hour, PGC_SIGHUP, GUC_UNIT_MS, nullptr, nullptr, nullptr);
    DefineCustomBoolVariable(
        "outbox.notify",
        "Whether a worker sends NOTIFY for consumers that have something to claim.",
        "The channel is outbox_ and the name of the consumer.", &notify, false, PGC_SIGHUP, 0,
        nullptr, nullptr, nullptr);
    DefineCustomStringVariable(
        "outbox.secrets_file", "The file with the secrets that sinks refer to.",
        "Lines of the form name = value. It must be the server's, mode 0600.", &secrets_file, "",
        PGC_SIGHUP, GUC_SUPERUSER_ONLY, nullptr, nullptr, nullptr);
    DefineCustomStringVariable(
        "outbox.http_allowed_hosts", "The hosts that HTTP sinks may talk to.",
        "A list with wildcards such as *.example.org; empty: all.", &http_allowed_hosts, "",
        PGC_SIGHUP, 0, check_allowed_hosts, nullptr, nullptr);
    DefineCustomBoolVariable("outbox.http_deny_private",
                             "Whether HTTP sinks must not talk to loopback and private addresses.",
                             "Judged by the address that a name resolves to.", &http_deny_private,
                             false, PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
}

} // namespace

std::optional<std::int64_t> tenant_id() noexcept
{
    if (tenant_value == nullptr)
        return std::nullopt;
    return *tenant_value;
}

std::optional<Datum> session_traceparent() noexcept
{
    if (traceparent_value == nullptr)
        return std::nullopt;
    return PointerGetDatum(traceparent_value);
}

void define_gucs(bool (*hosts)(const char* list))
{
    check_hosts = hosts;
    constexpr int day = 24 * 60 * 60;

    // Not PGC_USERSET: a tenant that any session may set isolates nobody.
    DefineCustomStringVariable("outbox.tenant_id", "The tenant that this session acts for.",
                               "Empty: none, and events without a tenant belong to tenant 0.",
                               &tenant_text, "", PGC_SUSET, 0, check_tenant, assign_tenant,
                               nullptr);
    DefineCustomStringVariable("outbox.traceparent",
                               "The trace that events of this session belong to.",
                               "For events that are enqueued without a trace_id. What is no "
                               "traceparent is ignored.",
                               &traceparent_text, "", PGC_USERSET, GUC_DISALLOW_IN_FILE,
                               check_traceparent, assign_traceparent, nullptr);
    DefineCustomStringVariable("outbox.source", "Where events come from, as sinks are told.",
                               "Empty: a slash and the name of the database.", &source, "",
                               PGC_SUSET, 0, nullptr, nullptr, nullptr);
    DefineCustomBoolVariable("outbox.statistics", "Whether events are counted.",
                             "In shared memory, so only if the library is preloaded.", &statistics,
                             true, PGC_SUSET, 0, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("outbox.dedup_window", "How long a dedup_key is remembered.",
                            "Counted from the enqueue that used the key first.", &dedup_window,
                            7 * day, 1, INT_MAX, PGC_SUSET, GUC_UNIT_S, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("outbox.max_payload_size",
                            "Largest payload, and largest metadata, that an event may carry.",
                            "Measured as the server stores jsonb, before compression.",
                            &max_payload_size, 1024 * 1024, 1024, MaxAllocSize / 4, PGC_SUSET,
                            GUC_UNIT_BYTE, nullptr, nullptr, nullptr);
    // Not settable by session: whoever enqueues first would choose for everybody.
    DefineCustomEnumVariable("outbox.partition_interval",
                             "How much time one partition of the log covers.",
                             "Read when the log gets its first partitions.", &partition_interval,
                             daily, partition_intervals, PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
    define_event_catalog_gucs();
    define_consumer_gucs();
    define_idempotency_gucs();
    define_relay_gucs();
    define_maintenance_gucs();
    pg::define_injection_point_gucs();
    MarkGUCPrefixReserved("outbox");
}

} // namespace outbox::settings
