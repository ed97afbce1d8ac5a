// Opens the sink that a definition describes, with the settings of the server.
#pragma once

#include "relay/sink_definitions.hpp"
#include "sink/interface/sink.hpp"

#include <memory>

namespace outbox {

// Throws outbox::Error if the definition or a setting is wrong, any other exception if memory, a
// thread or a descriptor is missing.
std::unique_ptr<sink::Sink> open_sink(const SinkDefinition& definition,
                                      const std::string& database);

// The message of an exception, with the hint if it has one.
std::string error_text(const std::exception& error);

} // namespace outbox
