// Making a sink of what its config says.
#pragma once

#include "sink/config/secrets.hpp"
#include "sink/config/sink_context.hpp"
#include "sink/interface/sink.hpp"

#include <functional>
#include <memory>

namespace outbox::sink {

// Throws outbox::Error if no sink of this kind can have this config, whatever the secrets are.
void check_sink(std::string_view kind, std::string_view config, const HostAllowlist& allowed_hosts);

// The secrets are asked for only if the config refers to some.
std::unique_ptr<Sink> make_sink(std::string_view kind, std::string_view config,
                                const std::function<Secrets()>& load_secrets,
                                const SinkContext& sink_context);

} // namespace outbox::sink
