#pragma once

#include "sink/config/host_allowlist.hpp"

#include <string>

namespace outbox::sink {

// Settings that all sinks of a database share, from GUCs.
struct SinkContext {
    std::string source;              // CloudEvents attribute "source" of all events
    HostAllowlist allowed_hosts{""}; // outbox.http_allowed_hosts
    bool deny_private = false;       // outbox.http_deny_private
};

} // namespace outbox::sink
