#include "sink/factory.hpp"

#include "core/error.hpp"
#include "sink/http.hpp"

namespace outbox::sink {

namespace {

HttpConfig parse(std::string_view kind, std::string_view config)
{
    if (kind != "http")
        throw Error("22023", "there are no sinks of kind \"" + std::string(kind) + "\"", {},
                    "The kind is http.");
    return parse_http_config(Config::parse(config));
}

void check_host(const Endpoint& endpoint, const AllowedHosts& allowed)
{
    if (!allowed.allows(endpoint.host, endpoint.port))
        throw Error("42501", "outbox.http_allowed_hosts does not allow this host", {},
                    "The host must be in that list, which is set in the server's configuration.");
}

} // namespace

void check_sink(std::string_view kind, std::string_view config, const AllowedHosts& allowed_hosts)
{
    const HttpConfig parsed = parse(kind, config);
    if (!has_secret_reference(parsed.url))
        check_host(endpoint_of(parsed.url), allowed_hosts);
    if (!parsed.proxy.empty() && !has_secret_reference(parsed.proxy))
        check_host(endpoint_of_proxy(parsed.proxy), allowed_hosts);
}

std::unique_ptr<Sink> make_sink(std::string_view kind, std::string_view config,
                                const std::function<Secrets()>& load_secrets,
                                const Surroundings& surroundings)
{
    HttpConfig parsed = parse(kind, config);
    Secrets secrets = has_secret_reference(config) ? load_secrets() : Secrets::parse("");
    parsed = resolve(std::move(parsed), secrets);
    check_host(endpoint_of(parsed.url), surroundings.allowed_hosts);
    if (!parsed.proxy.empty())
        check_host(endpoint_of_proxy(parsed.proxy), surroundings.allowed_hosts);
    return std::make_unique<HttpSink>(std::move(parsed), std::move(secrets), surroundings);
}

} // namespace outbox::sink
