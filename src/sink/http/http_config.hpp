#pragma once

#include "sink/config/json_config.hpp"
#include "sink/config/secrets.hpp"
#include "sink/format/cloudevents.hpp"

namespace outbox::sink {

// Config of an HTTP sink. Strings may contain ${secret:name} until resolve() has replaced them. An
// empty string is an absent key.
struct HttpConfig {
    std::string url;
    std::string method = "POST";
    HttpFormat format = HttpFormat::binary;
    JsonConfig::Pairs headers;
    std::vector<std::string> metadata_keys; // metadata keys that are sent as ce-<key>
    std::string secret;                     // key of the signature, `whsec_…` once resolved
    std::string previous_secret;            // key of a second signature, while keys are rotated
    int timeout_ms = 30'000;
    int connect_timeout_ms = 5'000;
    int concurrency = 16;
    std::string ca_file;
    std::string client_cert;
    std::string client_key;
    std::string proxy;
    std::optional<bool> http2; // offer HTTP/2 over TLS; std::nullopt: from libcurl 8 on
    int batch = 100;           // events per request, in batch format
};

// Raises 22023 for a config that cannot work, or that would store a credential in the catalog.
// Opens no files and resolves no secrets.
HttpConfig parse_http_config(const JsonConfig& config);

// Replaces all references to secrets. Raises 42704 for an unknown secret, 22023 if url, proxy or a
// header is invalid with its secrets.
HttpConfig resolve(HttpConfig config, const Secrets& secrets);

// Host and port that libcurl connects to, for HostAllowlist.
struct Endpoint {
    std::string host; // IPv6 in brackets
    int port = 0;     // if the URL has none: that of the scheme, for a proxy 1080
};

// Endpoint of a resolved url, or of a resolved proxy. Raises 22023 for an invalid URL.
Endpoint endpoint_of(const std::string& url);
Endpoint endpoint_of_proxy(const std::string& proxy);

} // namespace outbox::sink
