// Tenant sessions: sessions with outbox.tenant_id set. They see the rows of their tenant only. The
// setting is PGC_SUSET, so a session cannot leave its tenant.
#pragma once

#include "extension/argument_checks.hpp"

namespace outbox {

// Returns true if this session may see rows of this tenant; std::nullopt: rows of all tenants.
bool can_see_tenant(std::optional<int64> tenant);

// Raises insufficient_privilege in a tenant session. For functions that affect all tenants;
// `function` names the function, or the action, in the message.
void require_no_tenant(const char* function);

// Returns the tenant that a call acts for: the session's, or the requested one, or the default
// tenant. Raises insufficient_privilege if the call requests another tenant.
int64 effective_tenant(std::optional<int64> requested, const ArgumentName& argument = "tenant_id");

} // namespace outbox
