#include "sink/config/sink_context.hpp"
#include "sink/make_sink.hpp"

#include "sink/kafka/producer.hpp"
#include "sink_config_cases.hpp"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <system_error>
#include <thread>

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;
using namespace std::string_literals;

const std::string plain = R"({"url": "https://hooks.example.org/a"})";
const std::string plain_kafka = R"({"bootstrap.servers": "127.0.0.1:1", "topic": "t"})";

// Fails the test if the secrets are read.
Secrets no_secrets()
{
    ADD_FAILURE() << "the secrets were read";
    return Secrets::parse("");
}

SinkContext allowing(std::string_view hosts)
{
    SinkContext sink_context;
    sink_context.allowed_hosts = HostAllowlist(hosts);
    return sink_context;
}

TEST(MakeSink, OnlyHttpAndKafkaAreKinds)
{
    EXPECT_NO_THROW(check_sink("http", plain, HostAllowlist("")));
    EXPECT_FALSE(make_sink("http", plain, no_secrets, {})->preserves_order());
    EXPECT_NO_THROW(check_sink("kafka", plain_kafka, HostAllowlist("")));
    EXPECT_TRUE(make_sink("kafka", plain_kafka, no_secrets, {})->preserves_order());
    for (const char* kind : {"", "HTTP", "https", "Kafka", "http "}) {
        const auto [sqlstate, text] = error_of([&] { check_sink(kind, plain, HostAllowlist("")); });
        EXPECT_EQ(sqlstate, "22023") << kind;
        EXPECT_NE(text.find("\""s + kind + "\""), std::string::npos) << text;
        EXPECT_EQ(error_of([&] { make_sink(kind, plain, no_secrets, {}); }).first, "22023") << kind;
    }
}

// AddressSanitizer checks pointers by writing to a pipe; without a free descriptor it takes every
// object for invalid.
#ifndef __SANITIZE_ADDRESS__

// Limits the process to `count` more descriptors during its lifetime.
class FewDescriptors {
public:
    explicit FewDescriptors(std::size_t count)
    {
        // A session of an earlier test may still be ending, and would release descriptors
        // meanwhile.
        while (has_kafka_threads())
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::vector<int> free;
        for (std::size_t i = 0; i < count; ++i)
            free.push_back(dup(STDERR_FILENO));
        EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &usual_), 0);
        const rlimit few = {free.empty() ? 0 : static_cast<rlim_t>(free.back()) + 1,
                            usual_.rlim_max};
        EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
        for (const int descriptor : free)
            EXPECT_EQ(close(descriptor), 0);
    }
    ~FewDescriptors() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &usual_), 0); }
    FewDescriptors(const FewDescriptors&) = delete;
    FewDescriptors& operator=(const FewDescriptors&) = delete;

private:
    rlimit usual_;
};

// An outbox::Error disables the sink until its config changes; a shortage of descriptors must not.
TEST(MakeSink, AMissingDescriptorIsNoConfigError)
{
    const FewDescriptors few(0);
    EXPECT_THROW(make_sink("http", plain, no_secrets, {}), std::system_error);
    EXPECT_THROW(make_sink("kafka", plain_kafka, no_secrets, {}), std::system_error);
    const auto load = [] { return Secrets::load("/etc/hostname"); };
    const std::string with_secret = R"({"url": "https://example.org/", "secret": "${secret:a}"})";
    EXPECT_THROW(make_sink("http", with_secret, load, {}), std::system_error);
}

TEST(MakeSink, AMissingDescriptorOfLibrdkafkaIsNoConfigError)
{
    const std::string config = R"({"bootstrap.servers": "127.0.0.1:1", "topic": "t",
                                   "security.protocol": "ssl", "ssl.ca.location": "/etc/hostname"})";
    EXPECT_EQ(error_of([&] { make_sink("kafka", config, no_secrets, {}); }).first, "22023");
    const FewDescriptors few(2); // for the sink itself
    try {
        make_sink("kafka", config, no_secrets, {});
        FAIL() << "a descriptor was available";
    } catch (const outbox::Error& error) {
        FAIL() << error.what();
    } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find("librdkafka"), std::string::npos) << error.what();
    }
}

TEST(MakeSink, AResourceErrorOfLibrdkafkaHasNoSecrets)
{
    const std::string config =
        R"({"bootstrap.servers": "127.0.0.1:1", "topic": "t", "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "${secret:pw}"})";
    const auto load = [] { return Secrets::parse("pw = hunter2\n"); };
    const FewDescriptors few(2);
    try {
        make_sink("kafka", config, load, {});
        FAIL() << "a descriptor was available";
    } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find("***"), std::string::npos) << error.what();
        EXPECT_EQ(std::string(error.what()).find("hunter2"), std::string::npos) << error.what();
    }
}

#endif

TEST(MakeSink, InvalidConfigsAreRefused)
{
    for (const char* config : {"", "[]", "{}", R"({"url": "ftp://example.org"})",
                               R"({"url": "https://example.org", "retries": 3})"}) {
        EXPECT_EQ(error_of([&] { check_sink("http", config, HostAllowlist("")); }).first, "22023")
            << config;
        EXPECT_EQ(error_of([&] { make_sink("http", config, no_secrets, {}); }).first, "22023")
            << config;
    }
}

TEST(MakeSink, TheSinkFollowsItsConfig)
{
    const auto sink = make_sink("http", R"({"url": "https://example.org", "concurrency": 3,
        "format": "cloudevents-batch", "batch": 7, "metadata": ["region"]})",
                                no_secrets, {});
    EXPECT_EQ(sink->max_in_flight(), 3u);
    EXPECT_EQ(sink->max_events_per_request(), 7u);
    EXPECT_EQ(sink->metadata_keys(), std::vector<std::string>{"region"});
    EXPECT_GE(sink->wait_fd(), 0);
    EXPECT_EQ(make_sink("http", plain, no_secrets, {})->max_events_per_request(), 1u);
}

TEST(MakeSink, SecretsAreReadOnlyForAConfigWithReferences)
{
    int asked = 0;
    const auto load = [&] {
        ++asked;
        return Secrets::parse("t = token\n");
    };
    make_sink("http", plain, load, {});
    EXPECT_EQ(asked, 0);
    make_sink("http", R"({"url": "https://example.org", "headers": {"X": "${secret:t}"}})", load,
              {});
    EXPECT_EQ(asked, 1);
    const char* unknown = R"({"url": "https://example.org/${secret:u}"})";
    EXPECT_EQ(error_of([&] { make_sink("http", unknown, load, {}); }).first, "42704");
}

TEST(MakeSink, SecretsOfAKafkaConfigAreResolved)
{
    const char* config = R"({"bootstrap.servers": "${secret:servers}", "topic": "t"})";
    EXPECT_NO_THROW(check_sink("kafka", config, HostAllowlist("")));
    const auto load = [] { return Secrets::parse("servers = 127.0.0.1:1\n"); };
    EXPECT_NE(make_sink("kafka", config, load, {}), nullptr);
    const auto load_others = [] { return Secrets::parse("other = x\n"); };
    EXPECT_EQ(error_of([&] { make_sink("kafka", config, load_others, {}); }).first, "42704");
    EXPECT_EQ(error_of([&] { check_sink("kafka", plain, HostAllowlist("")); }).first, "22023");
}

TEST(MakeSink, ASigningSecretMustHaveAValidFormat)
{
    const char* config = R"({"url": "https://example.org", "secret": "${secret:s}"})";
    const auto [sqlstate, text] = error_of(
        [&] { make_sink("http", config, [] { return Secrets::parse("s = hunter2\n"); }, {}); });
    EXPECT_EQ(sqlstate, "22023");
    EXPECT_EQ(text.find("hunter2"), std::string::npos);
}

TEST(MakeSink, AConfigErrorHasNoSecrets)
{
    const auto load = [] { return Secrets::parse("p = hunter2/key.pem\n"); };
    for (const char* key : {"ca_file", "client_cert"}) {
        const std::string config =
            R"({"url": "https://example.org", ")" + std::string(key) + R"(": "/${secret:p}"})";
        const auto [sqlstate, text] = error_of([&] { make_sink("http", config, load, {}); });
        EXPECT_EQ(sqlstate, "F0000");
        EXPECT_NE(text.find("could not use " + std::string(key) + " \"/***\""), std::string::npos)
            << text;
    }
}

TEST(MakeSink, TheHostMustBeInTheAllowlist)
{
    for (const char* hosts : {"", "*", "hooks.example.org", "*.example.org:443"}) {
        EXPECT_NO_THROW(check_sink("http", plain, HostAllowlist(hosts))) << hosts;
        EXPECT_NO_THROW(make_sink("http", plain, no_secrets, allowing(hosts))) << hosts;
    }
    for (const char* hosts : {"example.org", "hooks.example.org:80", "other.example.org"}) {
        const auto [sqlstate, text] =
            error_of([&] { check_sink("http", plain, HostAllowlist(hosts)); });
        EXPECT_EQ(sqlstate, "42501") << hosts;
        EXPECT_NE(text.find("outbox.http_allowed_hosts"), std::string::npos) << text;
        EXPECT_EQ(error_of([&] { make_sink("http", plain, no_secrets, allowing(hosts)); }).first,
                  "42501");
    }
}

std::string through(const std::string& proxy)
{
    return R"({"url": "https://hooks.example.org/a", "proxy": ")" + proxy + "\"}";
}

void expect_proxy_to_be_checked(const std::string& proxy)
{
    SCOPED_TRACE(proxy);
    const std::string config = through(proxy);
    const auto load = [] { return Secrets::parse("pw = hunter2\nproxy = http://proxy:3128\n"); };
    for (const char* hosts : {"", "*.example.org proxy", "*.example.org proxy:3128"}) {
        EXPECT_NO_THROW(check_sink("http", config, HostAllowlist(hosts)));
        EXPECT_NO_THROW(make_sink("http", config, load, allowing(hosts)));
    }
    for (const char* hosts : {"*.example.org", "*.example.org proxy:3129"}) {
        const auto [sqlstate, text] =
            error_of([&] { make_sink("http", config, load, allowing(hosts)); });
        EXPECT_EQ(sqlstate, "42501");
        EXPECT_EQ(text.find("hunter2"), std::string::npos) << text;
        if (!has_secret_reference(proxy)) {
            EXPECT_EQ(error_of([&] { check_sink("http", config, HostAllowlist(hosts)); }).first,
                      "42501");
        }
    }
}

TEST(MakeSink, TheProxyMustBeInTheAllowlist)
{
    expect_proxy_to_be_checked("http://proxy:3128");
    expect_proxy_to_be_checked("${secret:proxy}");
}

TEST(MakeSink, TheHostOfAProxyIsFoundBehindAnySchemeAndUser)
{
    for (const char* proxy :
         {"proxy:3128", "socks5h://proxy:3128", "http://user:${secret:pw}@proxy:3128"})
        expect_proxy_to_be_checked(proxy);
}

TEST(MakeSink, AHostFromASecretIsCheckedWhenItIsKnown)
{
    for (const char* config :
         {R"({"url": "${secret:url}"})", R"({"url": "https://${secret:host}/a"})"}) {
        const auto load = [] {
            return Secrets::parse("url = https://hunter2.example/a\nhost = hunter2.example\n");
        };
        EXPECT_NO_THROW(check_sink("http", config, HostAllowlist("example.org")));
        EXPECT_NO_THROW(make_sink("http", config, load, allowing("hunter2.example")));
        const auto [sqlstate, text] =
            error_of([&] { make_sink("http", config, load, allowing("example.org")); });
        EXPECT_EQ(sqlstate, "42501");
        EXPECT_EQ(text.find("hunter2"), std::string::npos) << text;
    }
}

} // namespace
