// Opens the sink that a definition describes, with the settings of the server.
#pragma once

#include "relay/sink_definitions.hpp"
#include "sink/interface/sink.hpp"

#include <memory>

namespace outbox {

// Makes the sink, and reads outbox.secrets_file if the config refers to secrets. Throws
// outbox::Error if the definition or a setting is wrong, any other exception if memory, a thread or
// a descriptor is missing.
std::unique_ptr<sink::Sink> open_sink(const SinkDefinition& definition,
                                      const std::string& database);

// Returns the message of an exception, with the hint in parentheses if it is an outbox::Error with
// one.
std::string error_text(const std::exception& error);

} // namespace outbox
