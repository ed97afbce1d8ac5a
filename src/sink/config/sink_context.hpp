#pragma once

#include "sink/config/host_allowlist.hpp"

#include <string>

namespace outbox::sink {

// What all sinks of a database have in common.
struct SinkContext {
    std::string source; // of the events
    HostAllowlist allowed_hosts{""};
    bool deny_private = false;
};

} // namespace outbox::sink
