#include "sink/http/http_config.hpp"

#include "core/error.hpp"
#include "sink/config/url_userinfo.hpp"
#include "sink/format/encoding.hpp"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <memory>

namespace outbox::sink {

namespace {

constexpr std::string_view known_keys[] = {
    "url",     "method",          "format",     "headers",         "metadata",
    "secret",  "previous_secret", "timeout",    "connect_timeout", "concurrency",
    "ca_file", "client_cert",     "client_key", "proxy",           "batch",
    "http2",
};

// Headers that the sink sets, besides those that begin with ce- or webhook-.
constexpr std::string_view reserved_headers[] = {
    "connection", "content-length",  "content-type", "expect",
    "host",       "idempotency-key", "traceparent",  "transfer-encoding",
};

// A header whose name contains one of these words carries a credential.
constexpr std::string_view credential_words[] = {
    "authorization", "cookie",  "token",         "secret",           "password",
    "credential",    "api-key", "apikey",        "api_key",          "access-key",
    "auth-key",      "x-auth-", "functions-key", "subscription-key",
};

constexpr std::string_view proxy_schemes[] = {"http",    "https",  "socks4",
                                              "socks4a", "socks5", "socks5h"};

template <typename Range>
bool is_one_of(std::string_view text, const Range& range)
{
    return std::find(std::begin(range), std::end(range), text) != std::end(range);
}

// Raises 22023.
[[noreturn]] void refuse(const std::string& message, const std::string& hint = {})
{
    throw Error("22023", message, {}, hint);
}

struct FreeCurl {
    void operator()(CURLU* url) const { curl_url_cleanup(url); }
    void operator()(char* text) const { curl_free(text); }
};

// A URL parsed by libcurl, so that the checks see the same parts as the later connection.
class ParsedUrl {
public:
    // Raises 22023, with the name of the config key, if libcurl cannot parse the URL.
    ParsedUrl(const std::string& key, const std::string& url, unsigned flags) : url_(curl_url())
    {
        const CURLUcode code = curl_url_set(url_.get(), CURLUPART_URL, url.c_str(), flags);
        if (code != CURLUE_OK)
            throw Error("22023", "config key \"" + key + "\" must be a valid URL",
                        curl_url_strerror(code));
    }

    // Returns a part of the URL; empty if the URL has no such part.
    std::string part(CURLUPart which, unsigned flags = 0) const
    {
        char* text = nullptr;
        if (curl_url_get(url_.get(), which, &text, flags) != CURLUE_OK)
            return {};
        return std::unique_ptr<char, FreeCurl>(text).get();
    }

private:
    std::unique_ptr<CURLU, FreeCurl> url_;
};

// Raises 22023 if the URL has blanks, controls or non-ASCII characters. `key` is its config key.
void check_characters(const std::string& key, std::string_view url)
{
    const auto is_visible = [](char c) { return c > ' ' && c < 0x7F; };
    if (!std::all_of(url.begin(), url.end(), is_visible))
        refuse("config key \"" + key + "\" must be visible ASCII",
               "Percent-encode other characters, and write a host in punycode.");
}

// Returns the parsed url. Raises 22023 if it is not http or https, has a user, password or
// fragment, or has no host; also for an empty user and a third slash before the host, which libcurl
// accepts.
ParsedUrl check_url(const std::string& url)
{
    check_characters("url", url);
    const std::string start = ascii_lower(url.substr(0, 8));
    if (!start.starts_with("http://") && !start.starts_with("https://"))
        refuse("config key \"url\" must begin with http:// or https://");
    if (url.find('#') != std::string::npos)
        refuse("config key \"url\" must not have a fragment");
    const std::string_view authority = authority_of(url);
    if (authority.find('@') != std::string_view::npos)
        refuse("config key \"url\" must not contain a user name or password",
               "Use the header Authorization, with a ${secret:name} in it.");
    if (authority.empty() || url[url.find("://") + 3] == '/')
        refuse("config key \"url\" must have a host");
    ParsedUrl parsed("url", url, CURLU_DISALLOW_USER);
    if (parsed.part(CURLUPART_HOST).empty())
        refuse("config key \"url\" must have a host");
    return parsed;
}

// Returns the parsed proxy; libcurl guesses a missing scheme. Raises 22023 for an invalid URL, and
// if the proxy is not HTTP or SOCKS.
ParsedUrl check_proxy(const std::string& proxy)
{
    check_characters("proxy", proxy);
    ParsedUrl parsed("proxy", proxy, CURLU_NON_SUPPORT_SCHEME | CURLU_GUESS_SCHEME);
    if (!is_one_of(ascii_lower(parsed.part(CURLUPART_SCHEME)), proxy_schemes))
        refuse("config key \"proxy\" must be the URL of an HTTP or SOCKS proxy");
    return parsed;
}

// Returns the host of the URL and the number in `port`; 0 if it is not a number.
Endpoint endpoint_of(const ParsedUrl& parsed, const std::string& port)
{
    Endpoint endpoint{parsed.part(CURLUPART_HOST), 0};
    std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
    return endpoint;
}

// Raises 22023 for a literal password or a malformed reference in a stored proxy; if it has no
// references, also for what check_proxy() refuses.
void check_proxy_reference(const std::string& proxy)
{
    check_references(proxy);
    if (has_literal_password(proxy))
        refuse("config key \"proxy\" must not contain a password", secret_reference_hint);
    if (!has_secret_reference(proxy))
        check_proxy(proxy);
}

// Returns true for a token of RFC 9110, as names of headers are.
bool is_token(std::string_view name)
{
    const auto fits = [](char c) {
        return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
               std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
    };
    return !name.empty() && std::all_of(name.begin(), name.end(), fits);
}

// Returns true if a header of this name carries a credential. `lower_name` is in lower case.
bool is_credential(std::string_view lower_name)
{
    return std::any_of(
        std::begin(credential_words), std::end(credential_words),
        [&](std::string_view word) { return lower_name.find(word) != std::string_view::npos; });
}

// Raises 22023 for a value that is empty or blank, or has control characters other than tab.
void check_header_value(const std::string& name, std::string_view value)
{
    const auto is_control = [](char c) {
        return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F;
    };
    if (std::any_of(value.begin(), value.end(), is_control))
        refuse("header \"" + name + "\" must not contain control characters");
    if (value.find_first_not_of(" \t") == std::string_view::npos)
        refuse("header \"" + name + "\" must not be empty");
}

// Raises 22023 for an invalid name or value, a header of the sink itself, a malformed reference,
// and a credential without a ${secret:name}.
void check_header(const std::string& name, const std::string& value)
{
    if (!is_token(name))
        refuse("invalid name of a header: \"" + name + "\"");
    const std::string lower_name = ascii_lower(name);
    if (is_one_of(lower_name, reserved_headers) || lower_name.starts_with("ce-") ||
        lower_name.starts_with("webhook-"))
        refuse("header \"" + name + "\" is set by the sink itself");
    check_references(value);
    check_header_value(name, value);
    if (is_credential(lower_name) && !has_secret_reference(value))
        refuse("header \"" + name + "\" must take its value from a secret", secret_reference_hint);
}

// Raises 22023 for an unknown format.
HttpFormat parse_format(const std::string& text)
{
    if (text == "cloudevents")
        return HttpFormat::binary;
    if (text == "cloudevents-structured")
        return HttpFormat::structured;
    if (text == "cloudevents-batch")
        return HttpFormat::batch;
    if (text == "raw")
        return HttpFormat::raw;
    refuse("config key \"format\" must be cloudevents, cloudevents-structured, cloudevents-batch "
           "or raw");
}

// Returns the value of a config key that is one ${secret:name}; empty: no such key. Raises 22023.
std::string secret_key(const JsonConfig& config, const std::string& key)
{
    const auto text = config.text(key);
    if (text && !is_secret_reference(*text))
        refuse("config key \"" + key + "\" must be exactly one ${secret:name}",
               secret_reference_hint);
    return text.value_or("");
}

// Returns the absolute path in a config key; empty: no such key. Raises 22023. Opens no file.
std::string path_key(const JsonConfig& config, const std::string& key)
{
    const auto text = config.text(key);
    if (text && !text->starts_with('/'))
        refuse("config key \"" + key + "\" must be an absolute path");
    check_references(text.value_or(""));
    return text.value_or("");
}

// Returns in ms a config key of 0.1 to `max` s; `fallback`, in ms: no such key. Raises 22023.
int milliseconds_key(const JsonConfig& config, std::string_view key, int fallback, double max)
{
    const auto seconds = config.number(key, 0.1, max);
    return seconds ? static_cast<int>(std::lround(*seconds * 1000)) : fallback;
}

// Returns a config key from 1 to `max`; `fallback`: no such key. Raises 22023.
int count_key(const JsonConfig& config, std::string_view key, int fallback, int max)
{
    return static_cast<int>(config.integer(key, 1, max).value_or(fallback));
}

// Sets url, method, http2 and proxy of `parsed`. Raises 22023 if one is invalid or url is missing.
void parse_target(const JsonConfig& config, HttpConfig& parsed)
{
    const auto url = config.text("url");
    if (!url)
        refuse("config key \"url\" is missing");
    parsed.url = *url;
    check_references(parsed.url);
    if (!has_secret_reference(parsed.url))
        check_url(parsed.url);
    parsed.method = config.text("method").value_or(parsed.method);
    if (parsed.method != "POST" && parsed.method != "PUT")
        refuse("config key \"method\" must be POST or PUT");
    parsed.http2 = config.boolean("http2");
    if (const auto proxy = config.text("proxy")) {
        parsed.proxy = *proxy;
        check_proxy_reference(parsed.proxy);
    }
}

// Sets format, headers, metadata_keys and batch of `parsed`. Raises 22023 if one is invalid.
void parse_content(const JsonConfig& config, HttpConfig& parsed)
{
    parsed.format = parse_format(config.text("format").value_or("cloudevents"));
    parsed.headers = config.text_map("headers");
    for (const auto& [name, value] : parsed.headers)
        check_header(name, value);
    parsed.metadata_keys = config.text_list("metadata");
    check_metadata_keys(parsed.metadata_keys);
    parsed.batch = count_key(config, "batch", parsed.batch, 10'000);
    if (config.has("batch") && parsed.format != HttpFormat::batch)
        refuse("config key \"batch\" needs the format cloudevents-batch");
}

// Sets the signing secrets and the paths of TLS files of `parsed`. Raises 22023 if one is invalid.
void parse_credentials(const JsonConfig& config, HttpConfig& parsed)
{
    parsed.secret = secret_key(config, "secret");
    parsed.previous_secret = secret_key(config, "previous_secret");
    if (!parsed.previous_secret.empty() && parsed.secret.empty())
        refuse("config key \"previous_secret\" needs the key \"secret\"");
    parsed.ca_file = path_key(config, "ca_file");
    parsed.client_cert = path_key(config, "client_cert");
    parsed.client_key = path_key(config, "client_key");
    if (!parsed.client_key.empty() && parsed.client_cert.empty())
        refuse("config key \"client_key\" needs the key \"client_cert\"");
}

} // namespace

HttpConfig parse_http_config(const JsonConfig& config)
{
    config.refuse_unknown(known_keys);
    HttpConfig parsed;
    parse_target(config, parsed);
    parse_content(config, parsed);
    parse_credentials(config, parsed);
    parsed.timeout_ms = milliseconds_key(config, "timeout", parsed.timeout_ms, 600);
    parsed.connect_timeout_ms =
        milliseconds_key(config, "connect_timeout", parsed.connect_timeout_ms, 60);
    parsed.concurrency = count_key(config, "concurrency", parsed.concurrency, 256);
    return parsed;
}

HttpConfig resolve(HttpConfig config, const Secrets& secrets)
{
    for (std::string* text : {&config.url, &config.secret, &config.previous_secret, &config.ca_file,
                              &config.client_cert, &config.client_key, &config.proxy})
        *text = secrets.resolve(*text);
    check_url(config.url);
    if (!config.proxy.empty())
        check_proxy(config.proxy);
    for (auto& [name, value] : config.headers) {
        value = secrets.resolve(value);
        check_header_value(name, value);
    }
    return config;
}

Endpoint endpoint_of(const std::string& url)
{
    const ParsedUrl parsed = check_url(url);
    return endpoint_of(parsed, parsed.part(CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

Endpoint endpoint_of_proxy(const std::string& proxy)
{
    // libcurl uses this default port for every type of proxy.
    constexpr const char* default_port = "1080";
    const ParsedUrl parsed = check_proxy(proxy);
    const std::string port = parsed.part(CURLUPART_PORT);
    return endpoint_of(parsed, port.empty() ? default_port : port);
}

} // namespace outbox::sink
