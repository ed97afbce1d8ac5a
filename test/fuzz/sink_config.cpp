// Configs of sinks, with a secrets file and an allowlist of hosts.
#include "json_mutator.hpp"
#include "sink/http/http_config.hpp"
#include "sink/kafka/kafka_config.hpp"
#include "sink/make_sink.hpp"

#include <curl/curl.h>
#include <librdkafka/rdkafka.h>

namespace outbox::fuzz {

using Json = nlohmann::json;

constexpr std::string_view password = "hunter2";

std::span<const char* const> snippets()
{
    static constexpr const char* all[] = {
        "null",
        "true",
        "1",
        "0.5",
        "1e99",
        "\"hunter2\"",
        "\"${secret:key}\"",
        "[]",
        "{}",
        R"(["region"])",
        R"({"url": "https://example.org/hook"})",
        R"({"url": "https://user:hunter2@example.org/"})",
        R"({"url": "http://${secret:host}/"})",
        R"({"method": "PUT"})",
        R"({"format": "raw"})",
        R"({"format": "cloudevents-batch"})",
        R"({"headers": {"X-Team": "a b"}})",
        R"({"headers": {"Authorization": "Bearer ${secret:key}"}})",
        R"({"headers": {"Cookie": "hunter2"}})",
        R"({"X\r\nY": "a\r\nb"})",
        R"({"metadata": ["region"]})",
        R"({"secret": "${secret:sign}"})",
        R"({"previous_secret": "${secret:sign}"})",
        R"({"timeout": 5})",
        R"({"connect_timeout": 0.1})",
        R"({"concurrency": 256})",
        R"({"batch": 10})",
        R"({"ca_file": "/dev/null"})",
        R"({"client_cert": "/dev/null"})",
        R"({"client_key": "/dev/null"})",
        R"({"proxy": "http://proxy.example.org:3128"})",
        R"({"proxy": "socks5h://u:${secret:key}@p"})",
        R"({"http2": false})",
        R"({"topic": "shop.{aggregate_type}"})",
        R"({"topic": "orders"})",
        R"({"format": "debezium"})",
        R"({"bootstrap.servers": "broker:9092"})",
        R"({"linger.ms": 5})",
        R"({"security.protocol": "sasl_ssl"})",
        R"({"sasl.password": "${secret:key}"})",
        R"({"sasl.password": "hunter2"})",
        R"({"partitioner": "murmur2"})",
        R"({"acks": 1})",
        R"({"queue.buffering.max.messages": 100})",
        R"({"batch.size": 99999999999})",
        R"({"plugin.library.paths": "a.so"})",
        R"({"enable.idempotence": false})",
        R"({"compression.codec": "snappy"})",
        R"({"ssl.key.pem": "${secret:key}"})",
    };
    return all;
}

// Keys and names of attributes are not secret, so errors may repeat them.
bool may_be_repeated(const Json& json)
{
    if (!json.is_object())
        return false;
    return std::ranges::any_of(json.items(), [](const auto& member) {
        return member.key().find(password) != std::string::npos ||
               (member.key() == "metadata" &&
                member.value().dump().find(password) != std::string::npos) ||
               may_be_repeated(member.value());
    });
}

void check_error(const Error& error, std::string_view config)
{
    must(is_one_of(error.sqlstate(), {"22023", "42501", "42704", "F0000"}),
         "a refusal has a reason");
    const std::string text = std::string(error.what()) + error.detail() + error.hint();
    if (text.find(password) != std::string::npos)
        must(may_be_repeated(Json::parse(config, nullptr, false)), "no error repeats a value");
}

bool has_control(std::string_view text)
{
    return std::ranges::any_of(
        text, [](char c) { return (c >= 0 && c < ' ' && c != '\t') || c == 0x7F; });
}

// True if libcurl finds a user in the url.
bool has_user(const std::string& url)
{
    CURLU* parsed = curl_url();
    char* user = nullptr;
    const bool found = curl_url_set(parsed, CURLUPART_URL, url.c_str(), 0) == CURLUE_OK &&
                       curl_url_get(parsed, CURLUPART_USER, &user, 0) == CURLUE_OK;
    curl_free(user);
    curl_url_cleanup(parsed);
    return found;
}

void check_http(const sink::HttpConfig& config)
{
    must(is_visible_ascii(config.url) && config.url.substr(0, 4).size() == 4 &&
             !has_user(config.url),
         "a url is http, and has no user");
    must(!sink::endpoint_of(config.url).host.empty() && sink::endpoint_of(config.url).port >= 0,
         "a url has a host");
    for (const auto& [name, value] : config.headers) {
        must(!name.empty() && is_visible_ascii(name) && name.find(':') == std::string::npos,
             "a header's name is a token");
        must(!has_control(value), "a header's value is one line");
    }
    must(config.timeout_ms >= 100 && config.connect_timeout_ms >= 100 && config.concurrency >= 1 &&
             config.batch >= 1,
         "limits are in range");
}

std::string get(const sink::KafkaConf& conf, const char* name)
{
    char value[512] = "";
    std::size_t size = sizeof(value);
    (void)rd_kafka_conf_get(conf.get(), name, value, &size);
    return value;
}

void check_kafka(const sink::KafkaConfig& config)
{
    const sink::KafkaConf conf = sink::make_conf(config);
    must(get(conf, "enable.idempotence") == "true" &&
             get(conf, "enable.gapless.guarantee") == "true" &&
             get(conf, "message.timeout.ms") == "0" && get(conf, "log.queue") == "true",
         "order does not depend on the config");
    must(get(conf, "plugin.library.paths").empty(), "no code is loaded");
    must(config.max_in_flight >= 1 && config.timeout_ms >= 1000, "limits are in range");
}

// Checks a config and makes its sink, without connecting.
void make(std::string_view kind, std::string_view text, const sink::Secrets& secrets,
          const sink::HostAllowlist& allowed)
{
    if (kind == "http") {
        check_http(resolve(sink::parse_http_config(sink::JsonConfig::parse(text)), secrets));
        (void)sink::make_sink(kind, text, [&] { return secrets; }, {"/fuzz", allowed, true});
    } else {
        check_kafka(resolve(sink::parse_kafka_config(sink::JsonConfig::parse(text)), secrets));
    }
}

void check(std::string_view kind, const sink::HostAllowlist& allowed, const sink::Secrets& secrets,
           std::string_view config)
{
    const auto refused = error_of([&] { sink::check_sink(kind, config, allowed); });
    // librdkafka repeats values of properties that are no credentials.
    if (refused && kind == "http")
        check_error(*refused, config);
    if (kind != "http" && kind != "kafka") {
        must(refused.has_value(), "a sink of another kind is refused");
        return;
    }
    const auto failed = error_of([&] { make(kind, config, secrets, allowed); });
    must(failed || !refused, "no sink is made of a refused config");
    if (failed && !refused && !sink::has_secret_reference(config))
        must(std::string_view(failed->sqlstate()) == "F0000",
             "a sink is made of an accepted config");
}

void try_one(std::string_view input)
{
    const auto parts = split<4>(input, '\f');
    sink::HostAllowlist allowed("");
    sink::Secrets secrets = sink::Secrets::parse("");
    (void)error_of([&] { allowed = sink::HostAllowlist(parts[1]); });
    (void)error_of([&] { secrets = sink::Secrets::parse(parts[2]); });
    check(parts[0], allowed, secrets, parts[3]);
}

} // namespace outbox::fuzz
