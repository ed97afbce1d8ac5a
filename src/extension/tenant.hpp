// Sessions of a tenant: those in which outbox.tenant_id is set. Whoever is not a superuser cannot
// change that, and sees nothing of other tenants.
#pragma once

#include "pg/postgres.hpp"

#include <optional>

namespace outbox {

// May this session see what belongs to a tenant? Nothing: what belongs to all of them.
bool can_see_tenant(std::optional<int64> tenant);

// For what is about all tenants.
void require_no_tenant(const char* function);

} // namespace outbox
