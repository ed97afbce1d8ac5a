#include "pg/postgres.hpp"

#include "audit/append_only_guard.hpp"
#include "event_catalog/schema_cache.hpp"
#include "extension/guc.hpp"
#include "extension/preload.hpp"
#include "extension/relations.hpp"
#include "idempotency/pending_attempts.hpp"
#include "ipc/shmem.hpp"
#include "ipc/wakeup.hpp"
#include "launcher/launcher.hpp"
#include "launcher/utility_hook.hpp"
#include "pg/catalog_generation.hpp"
#include "pg/guc_placeholders.hpp"
#include "relay/sink_definitions.hpp"
#include "relay/sink_status_shmem.hpp"
#include "relay/test_sink.hpp"
#include "stats/transaction_counters.hpp"
#include "upcast/upcaster_cache.hpp"

#pragma GCC visibility push(default)
extern "C" {
PG_MODULE_MAGIC;
void _PG_init(void);
}
#pragma GCC visibility pop

// Defines the GUCs and registers callbacks of this process. Shared memory, the utility hook and the
// launcher need shared_preload_libraries; without it they are left out.
void _PG_init()
{
    outbox::preloaded = process_shared_preload_libraries_in_progress;
    outbox::pg::define_gucs_rejecting_client_placeholders(
        "outbox.", [] { outbox::settings::define_gucs(outbox::is_host_allowlist); });
    outbox::pg::set_up_catalog_generation();
    outbox::ipc::set_up_wakeup();
    outbox::set_up_pending_attempts();
    outbox::register_upcaster_callbacks();
    outbox::set_up_append_only_guard();
    outbox::set_up_schema_cache();
    if (!outbox::preloaded)
        return;
    outbox::ipc::set_up_worker_registry();
    outbox::set_up_sink_statuses();
    outbox::set_up_sink_tests();
    outbox::stats::set_up();
    outbox::ipc::set_up_shmem();
    outbox::set_up_utility_hook();
    // pg_upgrade: no worker may write while the clusters are copied.
    if (!IsBinaryUpgrade)
        outbox::register_launcher();
}
