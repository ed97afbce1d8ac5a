#include "relay/open_sink.hpp"

#include "core/error.hpp"
#include "extension/guc.hpp"
#include "sink/config/sink_context.hpp"
#include "sink/make_sink.hpp"

namespace outbox {

namespace {

// Reads outbox.secrets_file. Throws F0000 if it is not set, missing or not private.
sink::Secrets load_secrets()
{
    if (*settings::secrets_file == '\0')
        throw Error("F0000", "outbox.secrets_file is not set", {},
                    "Set it to the file with the secrets that sinks refer to.");
    return sink::Secrets::load(settings::secrets_file);
}

// Returns the context that all sinks of the database share, by the current settings. Throws for a
// malformed outbox.http_allowed_hosts.
sink::SinkContext sink_context(const std::string& database)
{
    sink::SinkContext context;
    context.source = *settings::source != '\0' ? settings::source : "/" + database;
    context.allowed_hosts = sink::HostAllowlist(settings::http_allowed_hosts);
    context.deny_private = settings::http_deny_private;
    return context;
}

} // namespace

std::unique_ptr<sink::Sink> open_sink(const SinkDefinition& definition, const std::string& database)
{
    return sink::make_sink(definition.kind, definition.config, load_secrets,
                           sink_context(database));
}

std::string error_text(const std::exception& error)
{
    std::string text = error.what();
    if (const auto* ours = dynamic_cast<const Error*>(&error))
        text += ours->hint().empty() ? "" : " (" + ours->hint() + ")";
    return text;
}

} // namespace outbox
