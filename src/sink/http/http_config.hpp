#pragma once

#include "sink/config/json_config.hpp"
#include "sink/config/secrets.hpp"
#include "sink/format/cloudevents.hpp"

namespace outbox::sink {

// Where an HTTP sink sends, and how. Strings may refer to secrets until `resolve` has replaced
// them. Empty is absent.
struct HttpConfig {
    std::string url;
    std::string method = "POST";
    HttpFormat format = HttpFormat::binary;
    JsonConfig::Pairs headers;
    std::vector<std::string> metadata_keys; // keys of the metadata that travel as ce-<key>
    std::string secret;                     // signs, `whsec_…` once resolved
    std::string previous_secret;            // signs too, while the receiver changes over
    int timeout_ms = 30'000;
    int connect_timeout_ms = 5'000;
    int concurrency = 16;
    std::string ca_file;
    std::string client_cert;
    std::string client_key;
    std::string proxy;
    std::optional<bool> http2; // over TLS, if the receiver has it; absent: if libcurl does it well
    int batch = 100;           // events per request, in batch format
};

// Throws 22023 for everything that could not work or would keep a password in the catalog.
HttpConfig parse_http_config(const JsonConfig& config);

// The config with all references replaced, and checked again. Throws 42704 for an unknown secret.
HttpConfig resolve(HttpConfig config, const Secrets& secrets);

// Whom a resolved url calls. The port is the scheme's if the url names none.
struct Endpoint {
    std::string host; // IPv6 in brackets
    int port = 0;
};

Endpoint endpoint_of(const std::string& url);
Endpoint endpoint_of_proxy(const std::string& proxy);

} // namespace outbox::sink
