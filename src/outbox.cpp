#include "pg/prelude.hpp"

#include "attempts.hpp"
#include "audit_guard.hpp"
#include "board.hpp"
#include "event_types.hpp"
#include "launcher.hpp"
#include "pg/catalog.hpp"
#include "pg/client_options.hpp"
#include "pg/guc.hpp"
#include "pg/library.hpp"
#include "pg/shared.hpp"
#include "pg/wake.hpp"
#include "sinks.hpp"
#include "stats.hpp"
#include "step_aside.hpp"
#include "test_sink.hpp"
#include "upcasters.hpp"

#pragma GCC visibility push(default)
extern "C" {
PG_MODULE_MAGIC;
void _PG_init(void);
}
#pragma GCC visibility pop

void _PG_init()
{
    outbox::pg::preloaded = process_shared_preload_libraries_in_progress;
    outbox::pg::define_settings("outbox.",
                                [] { outbox::settings::define(outbox::is_list_of_hosts); });
    outbox::pg::watch_catalog();
    outbox::pg::set_up_wake();
    outbox::watch_attempts();
    outbox::watch_upcasters();
    outbox::watch_removal();
    outbox::watch_event_types();
    if (!outbox::pg::preloaded)
        return;
    outbox::pg::set_up_posts();
    outbox::set_up_board();
    outbox::set_up_sink_tests();
    outbox::stats::set_up();
    outbox::pg::set_up_shared();
    outbox::watch_commands();
    // pg_upgrade wants both clusters as they are.
    if (!IsBinaryUpgrade)
        outbox::register_launcher();
}
