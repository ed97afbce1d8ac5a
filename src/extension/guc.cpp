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
// Initialized, because an assert-enabled server requires that an enum variable has its boot value.
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

// C++ never reads this variable: SQL passes the setting's name to pg_partman.
enum PartitionInterval { hourly, daily, weekly, monthly };
int partition_interval = daily;

// C++ never reads this variable: outbox_register_event() reads the setting in SQL.
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

// Check hook of outbox.tenant_id: accepts a bigint, which it passes on in `extra`, and the empty
// string.
bool check_tenant(char** text, void** extra, GucSource)
{
    if (**text == '\0')
        return true;
    const auto value = parse_bigint(*text);
    if (!value) {
        GUC_check_errdetail("The tenant must be a bigint, or empty for none.");
        return false;
    }
    auto* parsed = static_cast<std::int64_t*>(pg::alloc_guc_extra(sizeof(std::int64_t)));
    if (parsed == nullptr)
        return false;
    *parsed = *value;
    *extra = parsed; // owned and freed by the server
    return true;
}

// Assign hook of outbox.tenant_id. `extra` is nullptr for none.
void assign_tenant(const char*, void* extra)
{
    tenant_value = static_cast<const std::int64_t*>(extra);
}

// Check hook of outbox.traceparent. Accepts every value, because applications pass on the header of
// a request unchecked. A value that is empty, longer than max_length or not printable ASCII counts
// as not set; it may be in any encoding, so it must not reach SQL.
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

// Assign hook of outbox.traceparent. `extra` is nullptr for a value that counts as not set.
void assign_traceparent(const char*, void* extra)
{
    traceparent_value = static_cast<const struct varlena*>(extra);
}

// Settings of claims, leases and retries.
void define_consumer_gucs()
{
    constexpr int second = 1000;
    constexpr int day = 24 * 60 * 60 * second;

    DefineCustomIntVariable("outbox.batch_size", "Sets the maximum number of events per claim.",
                            "Used if the call does not specify it.", &batch_size, 100,
                            limits::min_batch_size, limits::max_batch_size, PGC_USERSET, 0, nullptr,
                            nullptr, nullptr);
    DefineCustomIntVariable(
        "outbox.lease", "Sets how long a claimed batch is leased to its worker.",
        "Used if the call does not specify it. A heartbeat renews the lease.", &lease, 30 * second,
        second, day, PGC_USERSET, GUC_UNIT_MS, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("outbox.upcaster_timeout",
                            "Sets the maximum time that an upcaster may take for one event.",
                            "An event that takes longer has failed.", &upcaster_timeout, second, 10,
                            60 * 60 * second, PGC_USERSET, GUC_UNIT_MS, nullptr, nullptr, nullptr);
    DefineCustomIntVariable(
        "outbox.max_attempts",
        "Sets the number of attempts after which an event becomes a dead letter.",
        "Used for consumers that do not set their own.", &max_attempts, 10, 1, limits::max_attempts,
        PGC_SUSET, 0, nullptr, nullptr, nullptr);
    DefineCustomIntVariable(
        "outbox.immediate_retries",
        "Sets how many failures of an event are followed by an immediate retry.",
        "Used for consumers that do not set their own.", &immediate_retries, 3, 0,
        limits::max_attempts, PGC_SUSET, 0, nullptr, nullptr, nullptr);
    DefineCustomIntVariable(
        "outbox.backoff_base",
        "Sets the first pause before a retry, which doubles with every failure.",
        "Used for consumers that do not set their own.", &backoff_base, second, 1, day, PGC_SUSET,
        GUC_UNIT_MS, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("outbox.backoff_max", "Sets the longest pause before a retry.",
                            "Used for consumers that do not set their own.", &backoff_max,
                            15 * 60 * second, 1, day, PGC_SUSET, GUC_UNIT_MS, nullptr, nullptr,
                            nullptr);
    DefineCustomRealVariable("outbox.backoff_jitter",
                             "Sets the fraction of a pause by which it may be shortened at random.",
                             "Used for consumers that do not set their own.", &backoff_jitter, 0.5,
                             0, 1, PGC_SUSET, 0, nullptr, nullptr, nullptr);
}

// PGC_SUSET, because producers must not be able to switch these rules off.
void define_event_catalog_gucs()
{
    DefineCustomEnumVariable("outbox.catalog_mode",
                             "Sets whether events must be registered and match their schema.",
                             "The value warn accepts other events with a warning.", &catalog_mode,
                             catalog_off, catalog_modes, PGC_SUSET, 0, nullptr, nullptr, nullptr);
    DefineCustomEnumVariable(
        "outbox.pii_mode", "Sets how the pii_fields of a registered event are handled.",
        "The value strip removes them from the payload, refuse rejects the "
        "event. Ignored while outbox.catalog_mode is off.",
        &pii_mode, pii_strip, pii_modes, PGC_SUSET, 0, nullptr, nullptr, nullptr);
    DefineCustomStringVariable(
        "outbox.event_name_pattern", "Sets a regular expression that new event names must match.",
        "Empty allows any name.", &event_name_pattern, "", PGC_SUSET, 0, nullptr, nullptr, nullptr);
}

void define_idempotency_gucs()
{
    constexpr int second = 1000;
    constexpr int day = 24 * 60 * 60;

    DefineCustomIntVariable("outbox.idempotency_ttl",
                            "Sets how long the response to an idempotency key is kept.",
                            "Used if the call does not specify it.", &idempotency_ttl, day, 1,
                            366 * day, PGC_USERSET, GUC_UNIT_S, nullptr, nullptr, nullptr);
    DefineCustomIntVariable(
        "outbox.idempotency_lease",
        "Sets how long a key is leased to an attempt that was begun and committed.",
        "Then another attempt may take it over. Used if the call does not "
        "specify it.",
        &idempotency_lease, 60 * second, second, day * second, PGC_USERSET, GUC_UNIT_MS, nullptr,
        nullptr, nullptr);
    DefineCustomBoolVariable("outbox.idempotency_required",
                             "Makes a call without an idempotency key an error.",
                             "Used for scopes without a value from idempotency_required().",
                             &idempotency_required, true, PGC_SUSET, 0, nullptr, nullptr, nullptr);
}

// Check hook of outbox.cold_storage_dir: accepts an absolute path and the empty string.
bool check_directory(char** path, void**, GucSource)
{
    if (**path == '\0' || is_absolute_path(*path))
        return true;
    GUC_check_errdetail("It must be an absolute path.");
    return false;
}

// Retention and archiving. PGC_SIGHUP: one value for all sessions and for the maintenance worker.
void define_maintenance_gucs()
{
    constexpr int minute = 60;
    constexpr int day = 24 * 60 * minute;
    const auto define_seconds = [](const char* name, const char* what, const char* more,
                                   int* variable, int value, int min) {
        DefineCustomIntVariable(name, what, more, variable, value, min, INT_MAX, PGC_SIGHUP,
                                GUC_UNIT_S, nullptr, nullptr, nullptr);
    };
    define_seconds("outbox.maintenance_interval",
                   "Sets the time between two runs of the maintenance worker.",
                   "A run makes partitions, archives and prunes. The first is at server start.",
                   &maintenance_interval, 5 * minute, 1);
    define_seconds("outbox.hot_retention",
                   "Sets the age at which events move from the log to the archive.",
                   "Whole partitions move, and only after every consumer has passed them.",
                   &hot_retention, 7 * day, 0);
    define_seconds("outbox.archive_retention",
                   "Sets the age at which events are removed from the archive.",
                   "-1 keeps them forever.", &archive_retention, 90 * day, -1);
    define_seconds("outbox.cold_retention",
                   "Sets the age of events at which their file in cold storage is removed.",
                   "-1 keeps them forever.", &cold_retention, -1, -1);
    define_seconds("outbox.delivery_retention",
                   "Sets how long the record of settled deliveries is kept.",
                   "The record is for inspection only.", &delivery_retention, day, 0);
    define_seconds("outbox.inbox_retention", "Sets how long inbox_accept() remembers an event.",
                   "It must be longer than the time within which an event can be redelivered.",
                   &inbox_retention, 30 * day, 0);
    define_seconds("outbox.stats_retention", "How long outbox_report can look back.",
                   "0: nothing is remembered.", &stats_retention, 7 * day, 0);
    define_seconds(
        "outbox.audit_retention", "Sets the age at which rows of the audit log are removed.",
        "Used for entity types without a value from audit_set_retention(). -1 keeps them forever.",
        &audit_retention, 2 * 365 * day, -1);
    DefineCustomStringVariable(
        "outbox.cold_storage_dir",
        "Sets the directory to which partitions are exported before they are dropped.",
        "If empty, they are dropped without an export.", &cold_storage_dir, "", PGC_SIGHUP,
        GUC_SUPERUSER_ONLY, check_directory, nullptr, nullptr);
    DefineCustomStringVariable(
        "outbox.archive_command", "Sets the shell command that is run for each exported file.",
        "%f is its path, %t the table, %d the day. The partition is dropped only after exit code "
        "0.",
        &archive_command, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY, nullptr, nullptr, nullptr);
}

bool (*check_hosts)(const char* list);

// Check hook of outbox.http_allowed_hosts, by the function that define_gucs() was given.
bool check_allowed_hosts(char** list, void**, GucSource)
{
    if (check_hosts(*list))
        return true;
    GUC_check_errdetail(
        "It must be a list of hosts such as example.org, *.example.org, [::1]:8080.");
    return false;
}

// Settings of the background workers. PGC_SIGHUP: the workers read them after a reload.
void define_relay_gucs()
{
    constexpr int second = 1000;
    constexpr int hour = 60 * 60 * second;

    DefineCustomBoolVariable(
        "outbox.relay", "Enables the background workers that serve the databases.",
        "Without them sinks receive nothing, and scheduled events are not released.", &relay, true,
        PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
    DefineCustomStringVariable(
        "outbox.databases", "Sets the databases that background workers serve.",
        "A list of names. Empty means all databases that have the extension.", &databases, "",
        PGC_SIGHUP, GUC_LIST_INPUT, nullptr, nullptr, nullptr);
    DefineCustomIntVariable(
        "outbox.relay_memory", "Sets the maximum memory of the claimed events that a relay holds.",
        "The sinks of a database share it equally.", &relay_memory, 64 * 1024, 1024, MAX_KILOBYTES,
        PGC_SIGHUP, GUC_UNIT_KB, nullptr, nullptr, nullptr);
    DefineCustomIntVariable(
        "outbox.relay_interval", "Sets how often a relay polls without a wakeup.",
        "Commits wake the relay. Polling finds changes that no commit reports.", &relay_interval,
        5 * second, 100, 24 * hour, PGC_SIGHUP, GUC_UNIT_MS, nullptr, nullptr, nullptr);
    DefineCustomBoolVariable("outbox.notify",
                             "Enables NOTIFY for consumers that have something to claim.",
                             "The channel is outbox_ followed by the name of the consumer.",
                             &notify, false, PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
    DefineCustomStringVariable(
        "outbox.secrets_file", "Sets the file with the secrets that sinks refer to.",
        "Its lines are name = value. It must belong to the server's user, with mode 0600.",
        &secrets_file, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY, nullptr, nullptr, nullptr);
    DefineCustomStringVariable(
        "outbox.http_allowed_hosts", "Sets the hosts that HTTP sinks may connect to.",
        "A list with wildcards such as *.example.org. Empty allows all hosts.", &http_allowed_hosts,
        "", PGC_SIGHUP, 0, check_allowed_hosts, nullptr, nullptr);
    DefineCustomBoolVariable(
        "outbox.http_deny_private",
        "Prevents HTTP sinks from connecting to loopback and private addresses.",
        "Checked for the address that a name resolves to.", &http_deny_private, false, PGC_SIGHUP,
        0, nullptr, nullptr, nullptr);
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

    // Not PGC_USERSET: a session that could change its tenant would not be isolated.
    DefineCustomStringVariable("outbox.tenant_id", "Sets the tenant that this session acts for.",
                               "Empty means none. Events without a tenant belong to tenant 0.",
                               &tenant_text, "", PGC_SUSET, 0, check_tenant, assign_tenant,
                               nullptr);
    DefineCustomStringVariable("outbox.traceparent",
                               "Sets the trace of the events that this session enqueues.",
                               "Used for events without a trace_id. An invalid traceparent is "
                               "ignored.",
                               &traceparent_text, "", PGC_USERSET, GUC_DISALLOW_IN_FILE,
                               check_traceparent, assign_traceparent, nullptr);
    DefineCustomStringVariable("outbox.source", "Sets the source of events that sinks send.",
                               "Empty means a slash and the name of the database.", &source, "",
                               PGC_SUSET, 0, nullptr, nullptr, nullptr);
    DefineCustomBoolVariable("outbox.statistics", "Collects statistics about events.",
                             "They are in shared memory, so the library must be preloaded.",
                             &statistics, true, PGC_SUSET, 0, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("outbox.dedup_window", "Sets how long a dedup_key is remembered.",
                            "Measured from the enqueue that used the key first.", &dedup_window,
                            7 * day, 1, INT_MAX, PGC_SUSET, GUC_UNIT_S, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("outbox.max_payload_size",
                            "Sets the largest payload, and the largest metadata, of an event.",
                            "Measured as the server stores jsonb, before compression.",
                            &max_payload_size, 1024 * 1024, 1024, MaxAllocSize / 4, PGC_SUSET,
                            GUC_UNIT_BYTE, nullptr, nullptr, nullptr);
    // PGC_SIGHUP: the session of the first enqueue must not choose the interval for all others.
    DefineCustomEnumVariable("outbox.partition_interval",
                             "Sets how much time one log partition covers.",
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
