// Settings that a client gave with its connection, before there was a library to say who may. They
// outrank what the DBA gave the role, the database or the server; when they are refused, neither
// is left, but the default.
#pragma once

namespace outbox::pg {

// Calls it to define all settings whose names begin with the prefix. Ends the session, as
// the server does when it knows them at the start, if the client had no right to one that it gave.
void define_gucs_rejecting_client_placeholders(const char* prefix, void (*define)());

} // namespace outbox::pg
