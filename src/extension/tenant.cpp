#include "extension/tenant.hpp"

#include "core/limits.hpp"
#include "extension/guc.hpp"
#include "pg/exceptions.hpp"

namespace outbox {

bool can_see_tenant(std::optional<int64> tenant)
{
    const auto own = settings::tenant_id();
    return !own || own == tenant;
}

void require_no_tenant(const char* function)
{
    if (!can_see_tenant(std::nullopt))
        ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                        errmsg("%s is not allowed while outbox.tenant_id is set", function),
                        errhint("It affects all tenants. Run it in a session without a tenant.")));
}

int64 effective_tenant(std::optional<int64> requested, const ArgumentName& argument)
{
    const auto own = settings::tenant_id();
    if (own && requested && *own != *requested)
        ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                        errmsg("%s " INT64_FORMAT " is not the tenant of this session",
                               argument.qualified(), *requested),
                        errhint("This session acts for the tenant in outbox.tenant_id only.")));
    return own ? *own : requested.value_or(limits::default_tenant);
}

} // namespace outbox

// For row security policies and views: returns true if this session may see rows of the tenant.
OUTBOX_SQL_FUNCTION(outbox_shows_tenant)
{
    return outbox::pg::sql_entry([&] {
        PG_RETURN_BOOL(outbox::can_see_tenant(
            PG_ARGISNULL(0) ? std::nullopt : std::optional<int64>(PG_GETARG_INT64(0))));
    });
}

// Returns outbox.tenant_id; NULL if it is empty.
OUTBOX_SQL_FUNCTION(outbox_session_tenant)
{
    return outbox::pg::sql_entry([&]() -> Datum {
        const auto own = outbox::settings::tenant_id();
        if (!own)
            PG_RETURN_NULL();
        PG_RETURN_INT64(*own);
    });
}

// Raises insufficient_privilege in a tenant session. The argument names the caller in the message.
OUTBOX_SQL_FUNCTION(outbox_require_no_tenant)
{
    return outbox::pg::sql_entry([&] {
        outbox::require_no_tenant(text_to_cstring(PG_GETARG_TEXT_PP(0)));
        PG_RETURN_VOID();
    });
}
