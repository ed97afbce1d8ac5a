#pragma once

#include <functional>
#include <string>

struct stat;

namespace outbox::sink {

// Returns the content of a regular file of at most 1 MiB. Never blocks: a FIFO, for example, is
// refused. `what` names the file in messages, such as "secrets file". `more_flags` are added to
// those of open(2). `check` gets the status of the open file and may raise an error. Raises F0000
// if the file cannot be used, std::system_error if the reason is temporary.
std::string read_small_file(const char* what, const std::string& path, int more_flags = 0,
                            const std::function<void(const struct stat&)>& check = {});

// Raises F0000 with path, reason and hint, for use in `check`.
[[noreturn]] void refuse_file(const char* what, const std::string& path, const std::string& why,
                              std::string hint);

} // namespace outbox::sink
