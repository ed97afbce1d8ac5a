// Placeholder settings of a client's startup packet (PGOPTIONS). Before the library is loaded the
// server accepts any value for them, and it outranks ALTER ROLE, ALTER DATABASE and
// postgresql.conf. If the definition then rejects the value for lack of privilege, the setting has
// its boot value and the administrator's value is lost.
#pragma once

namespace outbox::pg {

// Calls `define`, which defines all settings with this prefix. Ends the session with FATAL if the
// definition rejected a value of the client's connection, as the server does for its own settings.
void define_gucs_rejecting_client_placeholders(const char* prefix, void (*define)());

} // namespace outbox::pg
