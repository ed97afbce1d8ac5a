#include "pg/guc_placeholders.hpp"

#include "pg/postgres.hpp"

extern "C" {
#include "nodes/pg_list.h"
}

#include <cstring>

namespace outbox::pg {

namespace {

bool is_clients(const config_generic& setting)
{
    return setting.reset_source == PGC_S_CLIENT;
}

// Those without a definition, too.
List* given_by_client(const char* prefix)
{
    List* names = NIL;
    int count;
    config_generic** all = all_settings(&count);
    for (int i = 0; i < count; ++i)
        if (is_clients(*all[i]) && pg_strncasecmp(all[i]->name, prefix, std::strlen(prefix)) == 0)
            names = lappend(names, pstrdup(all[i]->name));
    return names;
}

bool is_among(const char* name, const List* names)
{
    ListCell* cell;
    foreach (cell, names)
        if (pg_strcasecmp(static_cast<const char*>(lfirst(cell)), name) == 0)
            return true;
    return false;
}

} // namespace

void define_settings(const char* prefix, void (*define)())
{
    const List* given = given_by_client(prefix);
    define();
    int count;
    config_generic** all = all_settings(&count);
    for (int i = 0; i < count; ++i)
        if (!is_clients(*all[i]) && is_among(all[i]->name, given))
            ereport(FATAL,
                    (errcode(ERRCODE_CANT_CHANGE_RUNTIME_PARAM),
                     errmsg("parameter \"%s\" cannot be set with the connection", all[i]->name),
                     errdetail("What the DBA has set would not count, either.")));
}

} // namespace outbox::pg
