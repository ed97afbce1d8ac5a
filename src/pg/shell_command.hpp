// Shell commands from settings, for background workers.
#pragma once

#include <chrono>
#include <string>

namespace outbox::pg {

// Runs a command in a process group of its own and waits for it. Kills the group after `limit`, or
// when this worker is told to shut down. Returns an empty string after exit code 0, or what went
// wrong. Not inside a transaction.
std::string run_shell_command(const std::string& command, std::chrono::seconds limit);

} // namespace outbox::pg
