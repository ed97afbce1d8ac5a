#include "pg/prelude.hpp"

#include "pg/catalog.hpp"
#include "pg/guc.hpp"
#include "pg/library.hpp"
#include "pg/wake.hpp"

#pragma GCC visibility push(default)
extern "C" {
PG_MODULE_MAGIC;
void _PG_init(void);
}
#pragma GCC visibility pop

void _PG_init()
{
    outbox::pg::preloaded = process_shared_preload_libraries_in_progress;
    outbox::settings::define();
    outbox::pg::watch_catalog();
    outbox::pg::set_up_wake();
}
