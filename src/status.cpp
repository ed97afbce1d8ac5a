#include "pg/prelude.hpp"

#include "pg/guard.hpp"
#include "pg/library.hpp"

OUTBOX_SQL_FUNCTION(outbox_is_preloaded)
{
    return outbox::pg::entry([&] { PG_RETURN_BOOL(outbox::pg::preloaded); });
}
