#pragma once

#include <functional>
#include <string>

struct stat;

namespace outbox::sink {

// The content of a regular file of at most 1 MiB. `what` is for messages: "secrets file". `check`
// may refuse it for what it is. Never waits, whatever the path leads to: a pipe, for example.
// Throws F0000.
std::string read_small_file(const char* what, const std::string& path, int more_flags = 0,
                            const std::function<void(const struct stat&)>& check = {});

// Throws F0000.
[[noreturn]] void refuse_file(const char* what, const std::string& path, const std::string& why,
                              std::string hint);

} // namespace outbox::sink
