// Factory of sinks: from kind and config, as outbox_sinks has them, to a Sink.
#pragma once

#include "sink/config/secrets.hpp"
#include "sink/config/sink_context.hpp"
#include "sink/interface/sink.hpp"

#include <functional>
#include <memory>

namespace outbox::sink {

// Checks a config when it is stored, without reading secrets or opening files. Raises 22023 for an
// unknown kind or a config that cannot work, and, for kind http, 42501 if `allowed_hosts` excludes
// the host of its url or proxy.
void check_sink(std::string_view kind, std::string_view config, const HostAllowlist& allowed_hosts);

// Makes a sink; opens descriptors and, for Kafka, starts threads. Calls `load_secrets` only if the
// config has a ${secret:name}. Raises outbox::Error for the config or its files, another
// std::exception for a lack of resources; no error text contains a secret.
std::unique_ptr<Sink> make_sink(std::string_view kind, std::string_view config,
                                const std::function<Secrets()>& load_secrets,
                                const SinkContext& sink_context);

} // namespace outbox::sink
