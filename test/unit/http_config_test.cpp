#include "sink/http/http_config.hpp"

#include "sink_config_cases.hpp"

#include <gtest/gtest.h>

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;
using namespace std::string_literals;

HttpConfig parse(const std::string& json)
{
    return parse_http_config(JsonConfig::parse(json));
}

// A config with a url and the members under test.
HttpConfig with(const std::string& members)
{
    return parse(R"({"url": "https://example.org/hook", )" + members + "}");
}

HttpConfig to(const std::string& url)
{
    return parse("{\"url\": \"" + url + "\"}");
}

HttpConfig with_header(const std::string& name, const std::string& value)
{
    return with("\"headers\": {\"" + name + "\": \"" + value + "\"}");
}

TEST(HttpConfig, OnlyTheUrlIsRequired)
{
    const HttpConfig config = to("https://example.org/hook");
    EXPECT_EQ(config.url, "https://example.org/hook");
    EXPECT_EQ(config.method, "POST");
    EXPECT_EQ(config.format, HttpFormat::binary);
    EXPECT_TRUE(config.headers.empty());
    EXPECT_TRUE(config.metadata_keys.empty());
    EXPECT_EQ(config.secret, "");
    EXPECT_EQ(config.timeout_ms, 30'000);
    EXPECT_EQ(config.connect_timeout_ms, 5'000);
    EXPECT_EQ(config.concurrency, 16);
    EXPECT_EQ(config.batch, 100);
    EXPECT_REFUSED(parse("{}"), "\"url\" is missing");
}

TEST(HttpConfig, AllKeysAreAccepted)
{
    const HttpConfig config = parse(R"({
        "url": "http://localhost:8080/", "method": "PUT", "format": "cloudevents-batch",
        "headers": {"X-Team": "a", "Authorization": "Bearer ${secret:t}"},
        "metadata": ["region", "a1"], "secret": "${secret:s}", "previous_secret": "${secret:p}",
        "timeout": 1.5, "connect_timeout": 0.25, "concurrency": 4, "ca_file": "/ca.pem",
        "client_cert": "/cert.pem", "client_key": "/key.pem", "proxy": "socks5h://proxy:1080",
        "batch": 500})");
    EXPECT_EQ(config.method, "PUT");
    EXPECT_EQ(config.format, HttpFormat::batch);
    EXPECT_EQ(config.headers,
              (JsonConfig::Pairs{{"Authorization", "Bearer ${secret:t}"}, {"X-Team", "a"}}));
    EXPECT_EQ(config.metadata_keys, (std::vector<std::string>{"region", "a1"}));
    EXPECT_EQ(config.secret, "${secret:s}");
    EXPECT_EQ(config.previous_secret, "${secret:p}");
    EXPECT_EQ(config.timeout_ms, 1500);
    EXPECT_EQ(config.connect_timeout_ms, 250);
    EXPECT_EQ(config.concurrency, 4);
    EXPECT_EQ(config.ca_file, "/ca.pem");
    EXPECT_EQ(config.client_cert, "/cert.pem");
    EXPECT_EQ(config.client_key, "/key.pem");
    EXPECT_EQ(config.proxy, "socks5h://proxy:1080");
    EXPECT_EQ(config.batch, 500);
}

TEST(HttpConfig, UnknownKeysAreRefused)
{
    EXPECT_REFUSED(with(R"("retries": 3)"), "unknown key \"retries\" in config");
    EXPECT_REFUSED(with(R"("retries": 3)"), "Known keys are url, method, format, headers,");
}

TEST(HttpConfig, HttpAndHttpsUrlsAreAccepted)
{
    for (const char* url :
         {"http://example.org", "HTTPS://Example.ORG:8443/a/b?c=d&e=%20", "http://127.0.0.1/",
          "http://[::1]:8080/x", "https://example.org/a@b?c=d@e", "http://xn--mnchen-3ya.example/"})
        EXPECT_EQ(to(url).url, url);
}

TEST(HttpConfig, OtherUrlsAreRefusedWithoutRepeatingThem)
{
    const std::pair<const char*, const char*> urls[] = {
        {"", "http://"},
        {"hunter2.example/", "http://"},
        {"ftp://hunter2/", "http://"},
        {"file:///etc/hunter2", "http://"},
        {"javascript:hunter2", "http://"},
        {"http:/hunter2/", "http://"},
        {"http:hunter2", "http://"},
        {"http://", "host"},
        {"http:///hunter2", "host"},
        {"http://?hunter2", "host"},
        {"http://:80/hunter2", "URL"},
        {"http://hunter2#x", "fragment"},
        {"http://hunter2/#", "fragment"},
        {"http://good@hunter2/", "user name"},
        {"http://good:hunter2@evil/", "user name"},
        {"http://@hunter2/", "user name"},
        {"http://:@hunter2/", "user name"},
        {"http://good%40hunter2@evil/", "user name"},
        {"http://good\\\\@hunter2/", "user name"},
        {"http://hunter2/a b", "visible"},
        {" http://hunter2/", "visible"},
        {"http://hunter2/\\r\\nX: y", "visible"},
        {"http://hunter2/\\t", "visible"},
        {"http://hunter2/\\u007f", "visible"},
        {"http://hünter2/", "visible"},
        {"http://hunter2:99999/", "URL"},
        {"http://hunter2:port/", "URL"},
        {"http://[::1/hunter2", "URL"},
        {"http://hunter2\\\\x/", "URL"},
        {"http://a^hunter2/", "URL"},
    };
    for (const auto& [url, part] : urls) {
        const std::string message = refusal([&] { to(url); });
        EXPECT_NE(message.find(part), std::string::npos) << url << ": " << message;
        EXPECT_EQ(message.find("hunter2"), std::string::npos) << message;
    }
    EXPECT_REFUSED(parse(R"({"url": 5})"), "must be a string");
    EXPECT_REFUSED(parse(R"({"url": "http://a/\u0000b"})"), "NUL");
}

TEST(HttpConfig, AUrlMayReferToASecret)
{
    EXPECT_NO_THROW(to("${secret:hook}"));
    EXPECT_NO_THROW(to("https://example.org/${secret:path}"));
    EXPECT_REFUSED(to("https://example.org/${secret:}"), "malformed");
    EXPECT_REFUSED(to("${secret:hook"), "malformed");
}

TEST(HttpConfig, UnknownMethodsAndFormatsAreRefused)
{
    EXPECT_EQ(with(R"("method": "PUT")").method, "PUT");
    for (const char* method : {"GET", "DELETE", "post", "", "POST "})
        EXPECT_REFUSED(with("\"method\": \""s + method + "\""), "must be POST or PUT");
    EXPECT_EQ(with(R"("format": "cloudevents")").format, HttpFormat::binary);
    EXPECT_EQ(with(R"("format": "cloudevents-structured")").format, HttpFormat::structured);
    EXPECT_EQ(with(R"("format": "cloudevents-batch")").format, HttpFormat::batch);
    EXPECT_EQ(with(R"("format": "raw")").format, HttpFormat::raw);
    for (const char* format : {"", "binary", "RAW", "debezium"})
        EXPECT_REFUSED(with("\"format\": \""s + format + "\""), "\"format\" must be");
}

TEST(HttpConfig, HeaderNamesMustBeTokens)
{
    for (const char* name : {"X-Team", "x", "!#$%&'*+-.^_`|~09azAZ"})
        EXPECT_NO_THROW(with_header(name, "v")) << name;
    for (const char* name :
         {"", "X Team", "X:", "X-Team:", "X\\r\\nY", "Ü", "X(", "\\\"X\\\"", "X\\t"})
        EXPECT_REFUSED(with_header(name, "v"), "invalid name of a header") << name;
}

TEST(HttpConfig, HeaderValuesWithControlCharactersAreRefused)
{
    EXPECT_NO_THROW(with_header("X-A", "a b\\tc é"));
    for (const char* value : {"a\\r\\nX: y", "a\\n", "\\r", "\\u0001", "\\u007f"})
        EXPECT_REFUSED(with_header("X-A", value), "control characters") << value;
    EXPECT_REFUSED(with_header("X-A", "a\\u0000"), "NUL");
    EXPECT_REFUSED(with_header("X-A", ""), "must not be empty");
    EXPECT_REFUSED(with_header("X-A", " \\t"), "must not be empty");
    EXPECT_REFUSED(with_header("X-A", "${secret:"), "malformed");
    EXPECT_REFUSED(with(R"("headers": {"X-A": 1})"), "values are strings");
    EXPECT_REFUSED(with(R"("headers": ["X-A: 1"])"), "values are strings");
}

TEST(HttpConfig, HeadersSetByTheSinkAreRefused)
{
    for (const char* name : {"Content-Type", "content-length", "HOST", "Transfer-Encoding",
                             "Connection", "expect", "Idempotency-Key", "TraceParent", "ce-id",
                             "CE-Whatever", "ce-", "Webhook-Id", "webhook-signature", "WEBHOOK-x"})
        EXPECT_REFUSED(with_header(name, "${secret:a}"), "set by the sink itself") << name;
    for (const char* name : {"X-Content-Type", "ceremony", "webhooks", "X-ce-id", "Tracestate"})
        EXPECT_NO_THROW(with_header(name, "v")) << name;
}

TEST(HttpConfig, CredentialsComeFromSecrets)
{
    for (const char* name :
         {"Authorization", "authorization", "Proxy-Authorization", "Cookie", "X-Api-Key",
          "x-apikey", "Api-Key", "X-Auth-Token", "X-Amz-Security-Token", "X-Vault-Token",
          "X-Client-Secret", "X-Password", "Ocp-Apim-Subscription-Key", "x-functions-key"}) {
        EXPECT_REFUSED(with_header(name, "hunter2"), "${secret:name}") << name;
        EXPECT_EQ(refusal([&] { with_header(name, "hunter2"); }).find("hunter2"),
                  std::string::npos);
        EXPECT_NO_THROW(with_header(name, "Bearer ${secret:t}")) << name;
    }
    for (const char* name : {"X-Author", "X-Partition-Key", "User-Agent", "Accept"})
        EXPECT_NO_THROW(with_header(name, "v")) << name;
}

TEST(HttpConfig, SigningSecretsMustBeReferences)
{
    for (const char* key : {"secret", "previous_secret"}) {
        for (const char* value : {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "", "x${secret:a}",
                                  "${secret:a}${secret:b}", "${secret:}"}) {
            const std::string message = refusal(
                [&] { with("\"secret\": \"${secret:s}\", \""s + key + "\": \"" + value + "\""); });
            EXPECT_NE(message.find("\""s + key + "\" must be exactly one"), std::string::npos);
            EXPECT_NE(message.find("secrets file"), std::string::npos);
            EXPECT_EQ(message.find("MfKQ"), std::string::npos);
        }
    }
    EXPECT_REFUSED(with(R"("previous_secret": "${secret:a}")"), "needs the key \"secret\"");
}

TEST(HttpConfig, MetadataNamesMustBeFreeCloudEventsAttributeNames)
{
    EXPECT_NO_THROW(with(R"("metadata": [])"));
    EXPECT_NO_THROW(with(R"("metadata": ["a", "a2345678901234567890", "0"])"));
    for (const char* name :
         {"", "Region", "user_id", "user-id", "a b", "é", "a\\n", "a23456789012345678901"})
        EXPECT_REFUSED(with("\"metadata\": [\""s + name + "\"]"), "invalid name of a CloudEvents")
            << name;
    for (const char* name :
         {"specversion", "id", "type", "source", "subject", "time", "partitionkey", "sequence",
          "tenantid", "eventversion", "datacontenttype", "data", "traceparent"})
        EXPECT_REFUSED(with("\"metadata\": [\""s + name + "\"]"), "set by the sink itself") << name;
    EXPECT_REFUSED(with(R"("metadata": ["a", "b", "a"])"), "twice");
    EXPECT_REFUSED(with(R"("metadata": "a")"), "array of strings");
}

TEST(HttpConfig, NumbersOutOfRangeAreRefused)
{
    EXPECT_EQ(with(R"("timeout": 0.1)").timeout_ms, 100);
    EXPECT_EQ(with(R"("timeout": 600)").timeout_ms, 600'000);
    for (const char* value : {"0", "0.09", "600.001", "-1", "\"30\"", "null"})
        EXPECT_REFUSED(with("\"timeout\": "s + value),
                       "\"timeout\" must be a number from 0.1 to 600");
    for (const char* value : {"0", "60.1"})
        EXPECT_REFUSED(with("\"connect_timeout\": "s + value), "from 0.1 to 60");
    for (const char* value : {"0", "257", "1.5"})
        EXPECT_REFUSED(with("\"concurrency\": "s + value), "from 1 to 256");
    for (const char* value : {"0", "10001"})
        EXPECT_REFUSED(with("\"format\": \"cloudevents-batch\", \"batch\": "s + value),
                       "from 1 to 10000");
}

TEST(HttpConfig, ABatchSizeNeedsTheBatchFormat)
{
    EXPECT_REFUSED(with(R"("batch": 5)"), "needs the format cloudevents-batch");
    EXPECT_REFUSED(with(R"("batch": 5, "format": "raw")"), "needs the format cloudevents-batch");
}

TEST(HttpConfig, PathsMustBeAbsolute)
{
    for (const char* key : {"ca_file", "client_cert", "client_key"})
        for (const char* path : {"", "ca.pem", "./ca.pem", "~/ca.pem", "${secret:path}"})
            EXPECT_REFUSED(with("\""s + key + "\": \"" + path + "\""), "must be an absolute path");
    EXPECT_REFUSED(with(R"("client_key": "/key.pem")"), "needs the key \"client_cert\"");
    EXPECT_NO_THROW(with(R"("client_cert": "/both.pem")"));
}

TEST(HttpConfig, AProxyPasswordMustComeFromASecret)
{
    for (const char* proxy :
         {"http://proxy:3128", "proxy:3128", "proxy", "https://proxy", "socks5://[::1]:1080",
          "http://user:${secret:p}@proxy:3128", "http://${secret:u}:${secret:p}@proxy",
          "user:${secret:p}@proxy", "http://${secret:userinfo}@proxy", "${secret:proxy}"})
        EXPECT_EQ(with("\"proxy\": \""s + proxy + "\"").proxy, proxy);
    for (const char* proxy :
         {"http://user:hunter2@proxy", "user:hunter2@proxy:3128", "http://hunter2@proxy",
          "http://${secret:u}:hunter2@proxy", "http://user:hunter2@${secret:host}",
          "http://user:hunt@er2@proxy", "http://user:@proxy", "user:hunter2@proxy/?x://y",
          "user:hunter2@proxy/?${secret:x}://y", "http:/user:hunter2@proxy",
          "http:///user:hunter2@proxy", "user:hunter2@proxy://x",
          "${secret:scheme}://user:hunter2@proxy", "user:hunter2${secret:empty}@proxy",
          "user:hunter2@${secret:host}@x", "http:${secret:slashes}user:hunter2@proxy"}) {
        EXPECT_REFUSED(with("\"proxy\": \""s + proxy + "\""), "must not contain a password")
            << proxy;
        EXPECT_EQ(refusal([&] { with("\"proxy\": \""s + proxy + "\""); }).find("hunter2"),
                  std::string::npos);
    }
    for (const char* proxy : {"", "ftp://proxy", "http://pro xy", "http://", "proxy:port", "\\n"})
        EXPECT_REFUSED(with("\"proxy\": \""s + proxy + "\""), "config key \"proxy\"") << proxy;
    EXPECT_REFUSED(with(R"("proxy": "http://u:${secret:}@p")"), "malformed");
}

TEST(HttpConfig, ResolveReplacesEveryReference)
{
    const Secrets secrets = Secrets::parse("hook = https://example.org/T0K\nt = tok\ns = whsec_1\n"
                                           "p = whsec_2\nd = dir\nw = pw\n");
    const HttpConfig config = resolve(
        parse(
            R"({"url": "${secret:hook}", "secret": "${secret:s}", "previous_secret": "${secret:p}",
                  "headers": {"Authorization": "Bearer ${secret:t}", "X-A": "b"},
                  "ca_file": "/${secret:d}/ca", "client_cert": "/${secret:d}/c",
                  "client_key": "/${secret:d}/k", "proxy": "http://u:${secret:w}@proxy"})"),
        secrets);
    EXPECT_EQ(config.url, "https://example.org/T0K");
    EXPECT_EQ(config.secret, "whsec_1");
    EXPECT_EQ(config.previous_secret, "whsec_2");
    EXPECT_EQ(config.headers, (JsonConfig::Pairs{{"Authorization", "Bearer tok"}, {"X-A", "b"}}));
    EXPECT_EQ(config.ca_file, "/dir/ca");
    EXPECT_EQ(config.client_cert, "/dir/c");
    EXPECT_EQ(config.client_key, "/dir/k");
    EXPECT_EQ(config.proxy, "http://u:pw@proxy");
}

TEST(HttpConfig, ResolvedValuesAreCheckedAgain)
{
    const Secrets secrets = Secrets::parse("ftp = ftp://hunter2/\nuser = http://good@hunter2/\n"
                                           "blank = http://hunter2/a b\npath = hunter2/\n"
                                           "empty = \"\"\n");
    for (const char* url : {"${secret:ftp}", "${secret:user}", "${secret:blank}", "${secret:path}",
                            "http://x@${secret:path}", "${secret:empty}"}) {
        const std::string message = refusal([&] { resolve(to(url), secrets); });
        EXPECT_NE(message, "") << url;
        EXPECT_EQ(message.find("hunter2"), std::string::npos) << message;
    }
    EXPECT_REFUSED(resolve(with(R"("proxy": "${secret:ftp}")"), secrets), "proxy");
    EXPECT_REFUSED(resolve(with_header("X-A", "${secret:empty}"), secrets), "must not be empty");

    HttpConfig split = to("http://example.org/");
    split.headers = {{"X-A", "a\r\nX: y"}};
    EXPECT_REFUSED(resolve(split, secrets), "control characters");
}

TEST(HttpConfig, AnErrorNamesTheUnknownSecret)
{
    try {
        resolve(to("${secret:nobody}"), Secrets::parse(""));
        ADD_FAILURE();
    } catch (const outbox::Error& error) {
        EXPECT_STREQ(error.sqlstate(), "42704");
        EXPECT_NE(std::string(error.what()).find("nobody"), std::string::npos);
    }
}

TEST(Endpoint, IsHostAndPortOfTheUrl)
{
    const auto endpoint = [](const std::string& url) {
        const Endpoint found = endpoint_of(url);
        return found.host + " " + std::to_string(found.port);
    };
    EXPECT_EQ(endpoint("http://example.org"), "example.org 80");
    EXPECT_EQ(endpoint("https://example.org/a?b"), "example.org 443");
    EXPECT_EQ(endpoint("HTTPS://example.org:8443/"), "example.org 8443");
    EXPECT_EQ(endpoint("http://[::1]:8080/x"), "[::1] 8080");
    EXPECT_EQ(endpoint("https://example.org/@evil"), "example.org 443");
    EXPECT_REFUSED(endpoint("http://good@evil/"), "user name");
}

} // namespace
