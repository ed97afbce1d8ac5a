// Maintenance of one database: each step in transactions of its own.
#pragma once

namespace outbox {

void run_maintenance();

} // namespace outbox
