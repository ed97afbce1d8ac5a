// Shell commands of the DBA's, for background workers.
#pragma once

#include <chrono>
#include <string>

namespace outbox::pg {

// Runs it in a group of processes of its own, and waits. Who is asked to leave meanwhile ends it,
// and so does the limit. Says what went wrong; empty: it exited with 0. Not in a transaction.
std::string run_shell_command(const std::string& command, std::chrono::seconds limit);

} // namespace outbox::pg
