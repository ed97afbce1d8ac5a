// Runs the steps of maintenance of one database.
#pragma once

namespace outbox {

// Runs the steps that _outbox.maintenance_steps() lists, each in transactions of its own, then
// outbox.archive_command for exported files. Returns early on SIGTERM.
void run_maintenance();

} // namespace outbox
