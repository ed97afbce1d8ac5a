#include "sink/make_sink.hpp"

#include "core/error.hpp"
#include "sink/http/http_sink.hpp"
#include "sink/kafka/kafka_sink.hpp"
#include "sink/kafka/threaded_sink.hpp"

namespace outbox::sink {

namespace {

// Raises 22023.
[[noreturn]] void refuse_kind(std::string_view kind)
{
    throw Error("22023", "unrecognized sink kind \"" + std::string(kind) + "\"", {},
                "The kind must be http or kafka.");
}

// Raises 42501 if the list does not allow the endpoint.
void check_host(const Endpoint& endpoint, const HostAllowlist& allowed)
{
    if (!allowed.allows(endpoint.host, endpoint.port))
        throw Error("42501", "outbox.http_allowed_hosts does not allow this host", {},
                    "Use a host in that list, or have an administrator add the host to it.");
}

// Raises 22023 or 42501. A url or proxy with a ${secret:name} has no known host yet: make_http()
// checks it.
void check_http(const JsonConfig& config, const HostAllowlist& allowed_hosts)
{
    const HttpConfig parsed = parse_http_config(config);
    if (!has_secret_reference(parsed.url))
        check_host(endpoint_of(parsed.url), allowed_hosts);
    if (!parsed.proxy.empty() && !has_secret_reference(parsed.proxy))
        check_host(endpoint_of_proxy(parsed.proxy), allowed_hosts);
}

// Resolves the secrets, then raises 42501 if the allowlist excludes the host of url or proxy.
std::unique_ptr<Sink> make_http(const JsonConfig& config, Secrets secrets,
                                const SinkContext& sink_context)
{
    HttpConfig parsed = resolve(parse_http_config(config), secrets);
    check_host(endpoint_of(parsed.url), sink_context.allowed_hosts);
    if (!parsed.proxy.empty())
        check_host(endpoint_of_proxy(parsed.proxy), sink_context.allowed_hosts);
    return std::make_unique<HttpSink>(std::move(parsed), std::move(secrets), sink_context);
}

// Makes a KafkaSink inside of a ThreadedSink. The allowlist of hosts does not apply to brokers.
std::unique_ptr<Sink> make_kafka(const JsonConfig& config, Secrets secrets,
                                 const SinkContext& sink_context)
{
    KafkaConfig parsed = resolve(parse_kafka_config(config), secrets);
    return std::make_unique<ThreadedSink>(
        std::make_unique<KafkaSink>(std::move(parsed), std::move(secrets), sink_context));
}

// Returns the error with its secrets redacted: a message about a file contains its resolved path.
Error redacted(const Error& error, const Secrets& secrets)
{
    std::string parts[] = {error.what(), error.detail(), error.hint()};
    for (std::string& part : parts)
        secrets.redact(part);
    return {error.sqlstate(), parts[0], parts[1], parts[2]};
}

} // namespace

void check_sink(std::string_view kind, std::string_view config, const HostAllowlist& allowed_hosts)
{
    if (kind == "http")
        check_http(JsonConfig::parse(config), allowed_hosts);
    else if (kind == "kafka")
        (void)parse_kafka_config(JsonConfig::parse(config));
    else
        refuse_kind(kind);
}

std::unique_ptr<Sink> make_sink(std::string_view kind, std::string_view config,
                                const std::function<Secrets()>& load_secrets,
                                const SinkContext& sink_context)
{
    const Secrets secrets = has_secret_reference(config) ? load_secrets() : Secrets::parse("");
    try {
        if (kind == "http")
            return make_http(JsonConfig::parse(config), secrets, sink_context);
        if (kind == "kafka")
            return make_kafka(JsonConfig::parse(config), secrets, sink_context);
    } catch (const Error& error) {
        throw redacted(error, secrets);
    }
    refuse_kind(kind);
}

} // namespace outbox::sink
