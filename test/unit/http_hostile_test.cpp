// Hostile receivers, proxies and addresses.
#include "http_stage.hpp"

#include <dlfcn.h>
#include <malloc.h>
#include <netdb.h>

#include <cstdlib>
#include <set>

namespace {

// getaddrinfo() below resolves this name to 127.0.0.1.
constexpr const char* rebound_name = "rebound.example";

} // namespace

// Replaces the C library's function; libcurl and librdkafka call it, too.
extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints,
                           addrinfo** found)
{
    static const auto look_up =
        reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
    const bool is_rebound = host != nullptr && std::string_view(host) == rebound_name;
    return look_up(is_rebound ? "127.0.0.1" : host, port, hints, found);
}

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test_http;

// ---- answers without end, which are meant to exhaust memory or time

enum class Flooder { receiver, proxy };

// Sends `head` once, then `streamed` repeatedly.
DeliveryResult result_of_flood(const std::string& head, const std::string& streamed,
                               Flooder flooder = Flooder::receiver)
{
    const Server server(always({head, Reply::stream, streamed}));
    HttpConfig config = config_for(server);
    if (flooder == Flooder::proxy) {
        config.url = "https://192.0.2.1/hook";
        config.proxy = server.url("");
    }
    config.timeout_ms = 500;
    const auto before = mallinfo2();
    Sender sender(config);
    const DeliveryResult result = sender.try_one();
    const auto after = mallinfo2();
    const auto kept = static_cast<std::ptrdiff_t>(after.uordblks + after.hblkhd) -
                      static_cast<std::ptrdiff_t>(before.uordblks + before.hblkhd);
    EXPECT_LT(kept, 2 << 20) << streamed.substr(0, 40);
    EXPECT_LT(sender.max_poll_time(), 100ms) << streamed.substr(0, 40);
    EXPECT_LT(result.reason.size(), 600u);
    return result;
}

// About as many repetitions as a server could send in a second, in one write.
std::string many(const std::string& one)
{
    std::string text;
    while (text.size() < 65536)
        text += one;
    return text;
}

TEST(HttpSink, AnAnswerWithoutEndIsUnavailable)
{
    const std::string ok = "HTTP/1.1 200 OK\r\n";
    EXPECT_EQ(result_of_flood(ok, many("X-More: of the same\r\n")).status,
              DeliveryStatus::unavailable);
    EXPECT_EQ(result_of_flood(ok + "X-Long: ", many("x")).status, DeliveryStatus::unavailable);
    EXPECT_EQ(result_of_flood("HTTP/1.1 200 ", many("OK ")).status, DeliveryStatus::unavailable);
    EXPECT_EQ(result_of_flood("", many("HTTP/1.1 100 Continue\r\n\r\n")).status,
              DeliveryStatus::unavailable);
    EXPECT_EQ(result_of_flood("", many("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")).status,
              DeliveryStatus::unavailable);
    EXPECT_EQ(result_of_flood("", many("what is this?")).status, DeliveryStatus::unavailable);
    const std::string chunked = ok + "Transfer-Encoding: chunked\r\n\r\n";
    EXPECT_EQ(result_of_flood(chunked + "1;x=", many("x")).status, DeliveryStatus::unavailable);
    EXPECT_EQ(result_of_flood(chunked + "0\r\n", many("X-Trailer: x\r\n")).status,
              DeliveryStatus::unavailable);
}

TEST(HttpSink, AProxyAnswerWithoutEndIsUnavailable)
{
    const std::string ok = "HTTP/1.1 200 OK\r\n";
    const std::string refusal = "HTTP/1.1 407 No\r\nTransfer-Encoding: chunked\r\n\r\n";
    const std::pair<std::string, std::string> floods[] = {
        {ok, "X-More: of the same\r\n"},
        {ok + "X-Long: ", "x"},
        {"HTTP/1.1 200 ", "OK "},
        {"", "HTTP/1.1 100 Continue\r\n\r\n"},
        {"", "what is this?"},
        {refusal, "4\r\nbody\r\n"},
        {refusal + "0\r\n", "X-Trailer: x\r\n"},
        {"HTTP/1.1 407 No\r\nContent-Length: 99999999999\r\n\r\n", "x"},
    };
    for (const auto& [head, again] : floods)
        EXPECT_EQ(result_of_flood(head, many(again), Flooder::proxy).status,
                  DeliveryStatus::unavailable)
            << head << again;
}

TEST(HttpSink, AnAnswerWithASuccessStatusAndABodyWithoutEndIsDelivered)
{
    const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    EXPECT_EQ(result_of_flood(chunked, many("4\r\nbody\r\n")).status, DeliveryStatus::delivered);
}

// The sink sends no Accept-Encoding, so it does not inflate any answer.
TEST(HttpSink, ACompressedAnswerIsNotInflated)
{
    for (const char* encoding : {"gzip", "deflate", "br", "zstd", "gzip, gzip, gzip"}) {
        const DeliveryResult result = result_of(
            status(422, "not compressed at all", "Content-Encoding: "s + encoding + "\r\n"));
        EXPECT_EQ(result.reason, "HTTP 422: not compressed at all") << encoding;
    }
    const Server server(always(status(200)));
    (void)Sender(config_for(server)).try_one();
    EXPECT_EQ(server.requests().at(0).header("accept-encoding"), "(absent)");
}

// ---- destinations

const SinkContext wary = {"/test", HostAllowlist(""), true};

bool is_denied(const DeliveryResult& result)
{
    return result.status == DeliveryStatus::unavailable &&
           result.reason.find("outbox.http_deny_private") != std::string::npos;
}

// Names in /etc/hosts with a loopback address; libcurl knows some more by itself.
std::vector<std::string> names_of_this_machine()
{
    std::vector<std::string> names;
    sethostent(1);
    while (const hostent* entry = gethostent()) {
        const auto* address = reinterpret_cast<const unsigned char*>(entry->h_addr_list[0]);
        if (entry->h_addrtype == AF_INET && address[0] == 127)
            names.emplace_back(entry->h_name);
    }
    endhostent();
    return names;
}

TEST(HttpSink, APrivateAddressIsDeniedInEverySpelling)
{
    const Server server(always(status(200)));
    const std::string url = server.url("/");
    const std::string port = url.substr(url.rfind(':'));
    std::vector<std::string> hosts = {
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7F.1",
        "0177.0.0.1",
        "017700000001",
        "0x7f.0x0.0.01",
        "127.0.0.1.",
        "0",
        "0.0.0.0",
        "localhost",
        "LocalHost",
        "localhost.",
        "[::1]",
        "[::]",
        "[0::0001]",
        "[::ffff:7f00:1]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "127.255.255.1",
        "169.254.169.254",
        "[64:ff9b::7f00:1]",
        "[fe80::1%25lo]",
        "10.1.2.3",
        "[::ffff:a00:1]",
        "%31%32%37.0.0.1",
        "192.168.1.1",
        "172.31.0.1",
        "[2002:7f00:1::1]",
        "[fd00::1]",
    };
    // Every version of libcurl accepts these as hosts.
    const std::set<std::string> plain = {
        "127.0.0.1", "2130706433",         "localhost",       "0.0.0.0",  "10.1.2.3",
        "[::1]",     "[::ffff:127.0.0.1]", "169.254.169.254", "[fd00::1]"};
    std::ranges::copy(names_of_this_machine(), std::back_inserter(hosts));
    for (const std::string& host : hosts) {
        HttpConfig config;
        config.url = "http://" + host + port;
        const DeliveryResult result = Sender(config, "", wary).try_one();
        EXPECT_EQ(result.status, DeliveryStatus::unavailable) << host;
        // libcurl rejects some of the other spellings, depending on its version.
        const bool is_none = result.reason.find("resolve") != std::string::npos ||
                             result.reason.find("URL") != std::string::npos;
        EXPECT_TRUE(is_denied(result) || (is_none && !plain.contains(host)))
            << host << ": " << result.reason;
    }
    EXPECT_EQ(server.connections(), 0);
}

// The name is in the allowlist. Its address is checked, which is known only after the lookup.
TEST(HttpSink, ANameIsCheckedByItsResolvedAddress)
{
    const Server server(always(status(200)));
    HttpConfig config = config_for(server);
    config.url.replace(config.url.find("127.0.0.1"), 9, rebound_name);
    const HostAllowlist listed(rebound_name);
    EXPECT_EQ(Sender(config, "", {"/test", listed, false}).try_one().status,
              DeliveryStatus::delivered);
    EXPECT_EQ(server.connections(), 1);
    const DeliveryResult result = Sender(config, "", {"/test", listed, true}).try_one();
    EXPECT_TRUE(is_denied(result)) << result.reason;
    config.proxy = config.url;
    config.url = "http://192.0.2.1/";
    const DeliveryResult proxied = Sender(config, "", wary).try_one();
    EXPECT_TRUE(is_denied(proxied)) << proxied.reason;
    EXPECT_EQ(server.connections(), 1);
}

TEST(HttpSink, AProxyWithAPrivateAddressIsNotConnected)
{
    const Server server(always(status(200)));
    for (const char* scheme : {"http", "socks4", "socks5", "socks5h"}) {
        HttpConfig config;
        config.url = "http://192.0.2.1/";
        config.proxy = scheme + server.url("").substr(4);
        const DeliveryResult result = Sender(config, "", wary).try_one();
        EXPECT_TRUE(is_denied(result)) << result.reason;
    }
    EXPECT_EQ(server.connections(), 0);
}

TEST(HttpSink, NoProxyInTheEnvironmentDoesNotDisableTheConfiguredProxy)
{
    const Server proxy(always(status(200)));
    HttpConfig config;
    config.url = "http://192.0.2.1/hook";
    config.proxy = proxy.url("");
    config.connect_timeout_ms = 500;
    for (const char* name : {"no_proxy", "NO_PROXY"})
        setenv(name, "*", 1);
    EXPECT_EQ(Sender(config).try_one().status, DeliveryStatus::delivered);
    for (const char* name : {"no_proxy", "NO_PROXY"})
        unsetenv(name);
    EXPECT_EQ(proxy.requests().at(0).line, "POST http://192.0.2.1/hook HTTP/1.1");
}

TEST(HttpSink, HeadersForTheReceiverAreNotSentToTheProxy)
{
    const Server proxy(always(status(403, "no")));
    HttpConfig config;
    config.url = "https://192.0.2.1/hook";
    config.proxy = proxy.url("");
    config.headers = {{"Authorization", "Bearer s3cr3t"}, {"X-Tenant", "7"}};
    EXPECT_EQ(Sender(config).try_one().status, DeliveryStatus::unavailable);
    const Request request = proxy.requests().at(0);
    EXPECT_EQ(request.line, "CONNECT 192.0.2.1:443 HTTP/1.1");
    for (const char* name : {"authorization", "x-tenant", "ce-id", "webhook-id"})
        EXPECT_EQ(request.header(name), "(absent)");
}

TEST(HttpSink, CookiesOfAnAnswerAreNotSentBack)
{
    const Server server(always(status(200, "", "Set-Cookie: a=b\r\n")));
    Sender sender(config_for(server));
    (void)sender.try_one(1);
    (void)sender.try_one(2);
    EXPECT_EQ(server.requests().at(1).header("cookie"), "(absent)");
}

// ---- secrets in answers

const std::string secret = "s3cr3t/t0ken+\"of\"&some=length";

DeliveryResult result_of_echo(const std::string& body)
{
    const Server server(always(status(422, body)));
    return Sender(config_for(server), "token = " + secret + "\n").try_one();
}

TEST(HttpSink, EncodedSecretsInAnAnswerAreRedacted)
{
    const auto bytes = [](const std::string& text) {
        return to_base64({reinterpret_cast<const unsigned char*>(text.data()), text.size()});
    };
    for (const std::string& echo :
         {R"({"Authorization": "Bearer s3cr3t\/t0ken+\"of\"&some=length"})"s,
          R"({"Authorization": "Bearer s3cr3t/t0ken+\u0022of\u0022\u0026some=length"})"s,
          "/hook?token=s3cr3t%2Ft0ken%2B%22of%22%26some%3Dlength HTTP/1.1"s,
          "/hook?token=s3cr3t%2ft0ken%2b%22of%22%26some%3dlength HTTP/1.1"s,
          "<p>Bearer s3cr3t/t0ken+&quot;of&quot;&amp;some=length</p>"s,
          "<p>Bearer S3CR3T/T0KEN+&#34;OF&#34;&amp;SOME=LENGTH</p>"s,
          "Basic " + bytes("u:" + secret), "Basic " + bytes("us:" + secret + "!"),
          "Basic " + bytes("use:" + secret)}) {
        const std::string said = result_of_echo(echo).reason;
        EXPECT_NE(said.find("***"), std::string::npos) << said;
        for (const char* part :
             {"t0ken", "T0KEN", "some", "length", "dDBrZW4", "QwdGtlb", "0MGtlbi"})
            EXPECT_EQ(said.find(part), std::string::npos) << said;
    }
}

// The sink keeps the beginning of a long answer and redacts it there, so the kept part becomes
// shorter.
TEST(HttpSink, SecretsAtTheEndOfTheKeptAnswerAreRedacted)
{
    for (std::size_t before = 0; before < secret.size(); ++before) {
        std::string body(before, '.');
        while (body.size() < 10'000)
            body += secret;
        const std::string said = result_of_echo(body).reason;
        ASSERT_EQ(said.find("s3cr"), std::string::npos) << said;
    }
}

} // namespace
