// Runs the steps of maintenance of one database.
#pragma once

namespace outbox {

// Runs the steps that _outbox.maintenance_steps() lists, each in transactions of its own, then
// outbox.archive_command for exported files. Skips steps that touch the log while a dump is being
// restored. Logs errors of steps and commands and goes on. Returns early on SIGTERM.
void run_maintenance();

} // namespace outbox
