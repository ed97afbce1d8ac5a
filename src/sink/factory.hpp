// Making a sink of what its config says.
#pragma once

#include "sink/hosts.hpp"
#include "sink/secrets.hpp"
#include "sink/sink.hpp"

#include <functional>
#include <memory>

namespace outbox::sink {

// What all sinks of a database have in common.
struct Surroundings {
    std::string source; // of the events
    AllowedHosts allowed_hosts{""};
    bool deny_private = false;
};

// Throws outbox::Error if no sink of this kind can have this config, whatever the secrets are.
void check_sink(std::string_view kind, std::string_view config, const AllowedHosts& allowed_hosts);

// The secrets are asked for only if the config refers to some.
std::unique_ptr<Sink> make_sink(std::string_view kind, std::string_view config,
                                const std::function<Secrets()>& load_secrets,
                                const Surroundings& surroundings);

} // namespace outbox::sink
