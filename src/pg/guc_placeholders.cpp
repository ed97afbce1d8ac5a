#include "pg/guc_placeholders.hpp"

#include "pg/postgres.hpp"

extern "C" {
#include "nodes/pg_list.h"
}

#include <cstring>

namespace outbox::pg {

namespace {

// Returns true if the client's connection set the value, by PGOPTIONS for example.
bool is_set_by_client(const config_generic& setting)
{
    return setting.reset_source == PGC_S_CLIENT;
}

// Returns the names, palloc'd, of all settings with this prefix that the client's connection set,
// placeholders included.
List* gucs_set_by_client(const char* prefix)
{
    List* names = NIL;
    int count;
    config_generic** all = all_gucs(&count);
    for (int i = 0; i < count; ++i)
        if (is_set_by_client(*all[i]) &&
            pg_strncasecmp(all[i]->name, prefix, std::strlen(prefix)) == 0)
            names = lappend(names, pstrdup(all[i]->name));
    return names;
}

// Compares names without regard to case, as the server does.
bool contains_name(const char* name, const List* names)
{
    ListCell* cell;
    foreach (cell, names)
        if (pg_strcasecmp(static_cast<const char*>(lfirst(cell)), name) == 0)
            return true;
    return false;
}

} // namespace

void define_gucs_rejecting_client_placeholders(const char* prefix, void (*define)())
{
    const List* client_gucs = gucs_set_by_client(prefix);
    define();
    int count;
    config_generic** all = all_gucs(&count);
    for (int i = 0; i < count; ++i)
        if (!is_set_by_client(*all[i]) && contains_name(all[i]->name, client_gucs))
            ereport(FATAL,
                    (errcode(ERRCODE_CANT_CHANGE_RUNTIME_PARAM),
                     errmsg("parameter \"%s\" cannot be set with the connection", all[i]->name),
                     errdetail("The session may not set it, and the value has displaced the one "
                               "that is configured for the role, the database or the server.")));
}

} // namespace outbox::pg
