#include "sink/http/http_sink.hpp"

#include "http_stage.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sched.h>

#include <cstdlib>
#include <ctime>
#include <set>

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test_http;

// ---- requests

TEST(HttpSink, AnEventIsSentAsAPostRequest)
{
    const Server server(always(status(200, "thanks")));
    Sender sender(config_for(server));
    const DeliveryResult result = sender.try_one(7);
    EXPECT_EQ(result.status, DeliveryStatus::delivered);
    EXPECT_FALSE(result.retry_after);
    ASSERT_EQ(server.requests().size(), 1u);
    const Request request = server.requests()[0];
    EXPECT_EQ(request.line, "POST /hook HTTP/1.1");
    EXPECT_EQ(request.body, R"({"n": 7})");
    EXPECT_EQ(request.header("content-type"), "application/json");
    EXPECT_EQ(request.header("ce-id"), make_event(7).tracking_id);
    EXPECT_EQ(request.header("ce-source"), "/test");
    EXPECT_EQ(request.header("webhook-id"), make_event(7).tracking_id);
    EXPECT_EQ(request.header("idempotency-key"), "\"" + make_event(7).tracking_id + "\"");
    for (const char* name : {"expect", "webhook-signature", "webhook-timestamp"})
        EXPECT_EQ(request.header(name), "(absent)") << name;
}

TEST(HttpSink, RequestsOnOneConnectionHaveTheirOwnHeadersAndBody)
{
    const Server server(always(status(204)));
    Sender sender(config_for(server));
    for (int id = 1; id <= 3; ++id)
        EXPECT_EQ(sender.try_one(id).status, DeliveryStatus::delivered);
    ASSERT_EQ(server.requests().size(), 3u);
    for (int id = 1; id <= 3; ++id) {
        const Request request = server.requests()[static_cast<std::size_t>(id - 1)];
        EXPECT_EQ(request.body, make_event(id).payload);
        EXPECT_EQ(request.header("ce-id"), make_event(id).tracking_id);
    }
    EXPECT_EQ(server.connections(), 1); // one connection for all requests
}

TEST(HttpSink, RequestsFollowTheConfig)
{
    const Server server(always(status(200)));
    HttpConfig config = config_for(server);
    config.method = "PUT";
    config.format = HttpFormat::batch;
    config.batch = 5;
    config.concurrency = 3;
    config.metadata_keys = {"region"};
    config.headers = {{"X-Team", "a b"}, {"User-Agent", "outbox"}};
    Sender sender(config);
    EXPECT_EQ(sender.sink.max_in_flight(), 3u);
    EXPECT_EQ(sender.sink.max_events_per_request(), 5u);
    EXPECT_EQ(sender.sink.metadata_keys(), std::vector<std::string>{"region"});
    sender.send(4, {make_event(1), make_event(2)});
    sender.sink.flush();
    EXPECT_EQ(sender.wait_for(1)[0].request_id, 4u);
    ASSERT_EQ(server.requests().size(), 1u);
    const Request request = server.requests()[0];
    EXPECT_EQ(request.line, "PUT /hook HTTP/1.1");
    EXPECT_EQ(request.header("content-type"), "application/cloudevents-batch+json");
    EXPECT_EQ(request.header("x-team"), "a b");
    EXPECT_EQ(request.header("user-agent"), "outbox");
    EXPECT_TRUE(request.body.starts_with("[{") && request.body.ends_with("}]"));
    EXPECT_NE(request.body.find(make_event(1).payload), std::string::npos);
    EXPECT_NE(request.body.find(make_event(2).payload), std::string::npos);
}

TEST(HttpSink, TheDefaultFormatSendsOneEventPerRequest)
{
    const Server server(always(silence));
    EXPECT_EQ(Sender(config_for(server)).sink.max_events_per_request(), 1u);
}

TEST(HttpSink, ALargeBodyArrivesComplete)
{
    const Server server(always(status(200)));
    Sender sender(config_for(server));
    Event event = make_event(1);
    for (int i = 0; event.payload.size() < 2'000'000; ++i)
        event.payload += std::to_string(i);
    sender.send(1, {event});
    sender.sink.flush();
    EXPECT_EQ(sender.wait_for(1)[0].status, DeliveryStatus::delivered);
    ASSERT_EQ(server.requests().size(), 1u);
    EXPECT_TRUE(server.requests()[0].body == event.payload);
    EXPECT_EQ(server.requests()[0].header("expect"), "(absent)");
}

TEST(HttpSink, ProxyVariablesOfTheEnvironmentAreIgnored)
{
    for (const char* name : {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"})
        setenv(name, "http://127.0.0.1:1", 1);
    EXPECT_EQ(result_of(status(200)).status, DeliveryStatus::delivered);
    for (const char* name : {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"})
        unsetenv(name);
}

// ---- signatures

// Computes the signature independently of src/, as a receiver does.
std::string signature(const std::string& key, const Request& request)
{
    const std::string text = request.header("webhook-id") + "." +
                             request.header("webhook-timestamp") + "." + request.body;
    unsigned char digest[32];
    unsigned size = 0;
    HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
         reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest, &size);
    unsigned char encoded[64];
    EVP_EncodeBlock(encoded, digest, static_cast<int>(size));
    return "v1," + std::string(reinterpret_cast<const char*>(encoded));
}

TEST(HttpSink, SignaturesVerifyWithBothSecrets)
{
    const Server server(always(status(500)));
    HttpConfig config = config_for(server);
    config.secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz";
    config.previous_secret = "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4";
    Sender sender(config);
    sender.try_one(1);
    sender.try_one(1);
    ASSERT_EQ(server.requests().size(), 2u);
    for (const Request& request : server.requests()) {
        EXPECT_EQ(request.header("webhook-id"), make_event(1).tracking_id);
        EXPECT_NEAR(std::stod(request.header("webhook-timestamp")),
                    static_cast<double>(std::time(nullptr)), 5);
        EXPECT_EQ(request.header("webhook-signature"),
                  signature("012345678901234567890123", request) + " " +
                      signature("abcdefghijklmnopqrstuvwx", request));
    }
}

TEST(HttpSink, WithoutAPreviousSecretARequestHasOneSignature)
{
    const Server server(always(status(200)));
    HttpConfig config = config_for(server);
    config.secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz";
    config.format = HttpFormat::structured;
    Sender(config).try_one();
    ASSERT_EQ(server.requests().size(), 1u);
    EXPECT_EQ(server.requests()[0].header("webhook-signature"),
              signature("012345678901234567890123", server.requests()[0]));
}

// ---- answers

TEST(HttpSink, AFailureReportsTheAnswerAndRetryAfter)
{
    const DeliveryResult result = result_of(status(500, "try\r\nlater\n", "Retry-After: 7\r\n"));
    EXPECT_EQ(result.status, DeliveryStatus::unavailable);
    EXPECT_EQ(result.reason, "HTTP 500: try  later");
    EXPECT_EQ(result.retry_after, 7s);
}

TEST(HttpSink, AFailureWithoutRetryAfterHasNoRetryAfter)
{
    EXPECT_EQ(result_of(status(503)).retry_after, std::nullopt);
    EXPECT_EQ(result_of(status(503)).reason, "HTTP 503");
    EXPECT_EQ(result_of(status(429, "", "Retry-After: soon\r\n")).retry_after, std::nullopt);
}

TEST(HttpSink, TheHttpStatusDeterminesTheDeliveryStatus)
{
    EXPECT_EQ(result_of(status(202)).status, DeliveryStatus::delivered);
    EXPECT_EQ(result_of(status(422, "no")).status, DeliveryStatus::rejected);
    EXPECT_EQ(result_of(status(422, "no")).reason, "HTTP 422: no");
    EXPECT_EQ(result_of(status(404)).status, DeliveryStatus::unavailable);
    EXPECT_EQ(result_of(status(410, "moved on")).status, DeliveryStatus::endpoint_gone);
    EXPECT_EQ(result_of(status(410, "moved on")).reason, "HTTP 410: moved on");
}

// A wrong url, a wrong credential or rate limiting affects every event.
TEST(HttpSink, AServerErrorAndATimeoutMayBeTheFaultOfTheEvent)
{
    for (const int code : {500, 502, 503, 504, 599})
        EXPECT_TRUE(result_of(status(code)).may_be_event_fault) << code;
    for (const int code : {301, 307, 401, 403, 404, 405, 407, 408, 425, 429})
        EXPECT_FALSE(result_of(status(code)).may_be_event_fault) << code;
    EXPECT_TRUE(result_of(silence, 100).may_be_event_fault);
}

TEST(HttpSink, RedirectsAreNotFollowed)
{
    const Server other(always(status(200)));
    EXPECT_EQ(result_of(status(307, "", "Location: " + other.url() + "\r\n")).status,
              DeliveryStatus::unavailable);
    EXPECT_TRUE(other.requests().empty());
}

TEST(HttpSink, AResultHasNothingOfTheAnswerBeforeIt)
{
    int count = 0;
    const Server server([&](const Request&) {
        return ++count == 1 ? status(503, "overloaded", "Retry-After: 9\r\n") : status(400);
    });
    Sender sender(config_for(server));
    EXPECT_EQ(sender.try_one(1).reason, "HTTP 503: overloaded");
    const DeliveryResult result = sender.try_one(2);
    EXPECT_EQ(result.reason, "HTTP 400");
    EXPECT_EQ(result.retry_after, std::nullopt);
}

TEST(HttpSink, AClosedConnectionIsUnavailable)
{
    for (const char* bytes :
         {"", "what?\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"}) {
        const DeliveryResult result = result_of({bytes, Reply::close});
        EXPECT_EQ(result.status, DeliveryStatus::unavailable) << bytes;
        EXPECT_NE(result.reason, "") << bytes;
        EXPECT_FALSE(result.reason.starts_with("HTTP 200")) << bytes;
    }
}

TEST(HttpSink, AnAnswerThatIsNotHttpIsUnavailable)
{
    for (const char* line : {"HTTP/*1.1 500 X", "http/1.1 500 X", "HTTP/1.1x500", "HTTP/"}) {
        const DeliveryResult result =
            result_of({line + "\r\nContent-Length: 0\r\n\r\n"s, Reply::close});
        EXPECT_EQ(result.status, DeliveryStatus::unavailable) << line;
        EXPECT_NE(result.reason, "") << line;
    }
}

TEST(HttpSink, InterimAnswersAreSkipped)
{
    const std::string interim = "HTTP/1.1 100 Continue\r\nLink: x\r\n\r\nHTTP/1.1 103 \r\n\r\n";
    EXPECT_EQ(result_of({interim + status(201).bytes}).status, DeliveryStatus::delivered);
    EXPECT_EQ(result_of({interim + status(422).bytes}).status, DeliveryStatus::rejected);
    EXPECT_EQ(result_of({"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                         "0\r\nTrailer: x\r\n\r\n"})
                  .status,
              DeliveryStatus::delivered);
}

TEST(HttpSink, ARefusedConnectionIsUnavailable)
{
    HttpConfig config;
    config.url =
        Server(always(silence)).url(); // the server has stopped: its port refuses connections
    const DeliveryResult result = Sender(config).try_one();
    EXPECT_EQ(result.status, DeliveryStatus::unavailable);
    EXPECT_FALSE(result.may_be_event_fault);
    EXPECT_NE(result.reason.find("127.0.0.1"), std::string::npos) << result.reason;
}

TEST(HttpSink, OnlyTheBeginningOfALongAnswerIsRead)
{
    for (const int code : {200, 422, 503}) {
        const std::string head =
            "HTTP/1.1 " + std::to_string(code) + " Whatever\r\nRetry-After: 3\r\n\r\nfirst words ";
        const Server server(always({head, Reply::stream}));
        const DeliveryResult result = Sender(config_for(server)).try_one();
        EXPECT_EQ(result.status, code == 200   ? DeliveryStatus::delivered
                                 : code == 422 ? DeliveryStatus::rejected
                                               : DeliveryStatus::unavailable);
        wait_until([&] { return server.streamed() > 0; });
        EXPECT_LT(server.streamed(), Server::max_stream_bytes);
        if (code == 200)
            continue;
        EXPECT_TRUE(result.reason.starts_with("HTTP " + std::to_string(code) + ": first words x"));
        EXPECT_LT(result.reason.size(), 600u);
        EXPECT_EQ(result.retry_after, 3s);
    }
}

TEST(HttpSink, AnAnswerOf64KiBIsReadCompletely)
{
    const Server server(always(status(200, std::string(65536, 'x'))));
    Sender sender(config_for(server));
    for (int id = 1; id <= 3; ++id)
        EXPECT_EQ(sender.try_one(id).status, DeliveryStatus::delivered);
    EXPECT_EQ(server.connections(), 1); // no request broke off its connection
}

TEST(HttpSink, AMissingAnswerIsUnavailableAfterTheTimeout)
{
    const Server server(always(silence));
    HttpConfig config = config_for(server);
    config.timeout_ms = 100;
    const TimePoint start = Clock::now();
    const DeliveryResult result = Sender(config).try_one();
    EXPECT_EQ(result.status, DeliveryStatus::unavailable);
    EXPECT_GE(Clock::now() - start, 99ms);
    EXPECT_NE(result.reason.find("timed out"), std::string::npos) << result.reason;
}

// ---- the wait descriptor and next_poll_at()

TEST(HttpSink, TheWaitFdAndNextPollAtSayWhenToPoll)
{
    const Server server(always(status(200)));
    for (int i = 0; i < 20 && !HasFailure(); ++i)
        EXPECT_EQ(Sender(config_for(server)).try_one(1, true).status, DeliveryStatus::delivered)
            << i;
}

TEST(HttpSink, NextPollAtReportsAnImmediateFailure)
{
    HttpConfig config;
    config.url =
        Server(always(silence)).url(); // the server has stopped: its port refuses connections
    for (const bool deny_private : {true, false}) {
        Sender sender(config, "", {"/test", HostAllowlist(""), deny_private});
        for (int i = 0; i < 5; ++i)
            EXPECT_EQ(sender.try_one(1, true).status, DeliveryStatus::unavailable);
    }
}

// With one processor, the server answers before flush() returns.
class OnOneProcessor {
public:
    OnOneProcessor()
    {
        sched_getaffinity(0, sizeof(before_), &before_);
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        sched_setaffinity(0, sizeof(one), &one);
    }
    ~OnOneProcessor() { sched_setaffinity(0, sizeof(before_), &before_); }

private:
    cpu_set_t before_;
};

TEST(HttpSink, NextPollAtReportsAnImmediateAnswerWhileAnotherHangs)
{
    const OnOneProcessor pinned;
    const Server server(hangs_on_first);
    Sender sender(config_for(server));
    sender.send(1, {make_event(1)});
    for (int i = 0; i < 100 && !HasFailure(); ++i)
        EXPECT_EQ(sender.try_one(2, true).status, DeliveryStatus::delivered) << i;
}

TEST(HttpSink, WithoutRequestsInFlightNoPollIsDue)
{
    const Server server(always(status(200)));
    Sender sender(config_for(server));
    EXPECT_EQ(sender.sink.next_poll_at(), std::nullopt);
    sender.try_one();
    std::this_thread::sleep_for(5ms);
    std::vector<DeliveryResult> results;
    sender.sink.poll(results);
    pollfd fd = {sender.sink.wait_fd(), POLLIN, 0};
    EXPECT_EQ(poll(&fd, 1, 0), 0);
    EXPECT_EQ(sender.sink.next_poll_at(), std::nullopt);
    EXPECT_TRUE(results.empty());
}

// ---- concurrent requests

TEST(HttpSink, ManyRequestsAreInFlightAtOnce)
{
    constexpr std::size_t count = 9;
    const Server server(
        [](const Request& request) {
            return request.body == make_event(5).payload ? status(422, "not five") : status(200);
        },
        count);
    Sender sender(config_for(server));
    for (std::size_t id = 1; id <= count; ++id)
        sender.send(id, {make_event(static_cast<std::int64_t>(id))});
    sender.sink.flush();
    std::set<RequestId> heard_of;
    for (const DeliveryResult& result : sender.wait_for(count)) {
        heard_of.insert(result.request_id);
        EXPECT_EQ(result.status,
                  result.request_id == 5 ? DeliveryStatus::rejected : DeliveryStatus::delivered);
    }
    EXPECT_EQ(heard_of.size(), count);
}

TEST(HttpSink, ARequestThatHangsDelaysNoOther)
{
    const Server server(hangs_on_first);
    Sender sender(config_for(server));
    sender.send(1, {make_event(1)});
    sender.sink.flush();
    wait_until([&] {
        std::vector<DeliveryResult> results;
        sender.sink.poll(results);
        return server.requests().size() == 1;
    });
    for (int id = 2; id <= 5; ++id)
        EXPECT_EQ(sender.try_one(id).status, DeliveryStatus::delivered);
}

TEST(HttpSink, CancelledRequestsHaveNoResult)
{
    bool hangs = true;
    std::mutex mutex;
    const Server server([&](const Request&) {
        const std::lock_guard lock(mutex);
        return hangs ? silence : status(200);
    });
    Sender sender(config_for(server));
    for (std::size_t id = 1; id <= 3; ++id)
        sender.send(id, {make_event(static_cast<std::int64_t>(id))});
    sender.sink.flush();
    std::vector<DeliveryResult> results;
    wait_until([&] {
        sender.sink.poll(results);
        return server.requests().size() == 3;
    });
    sender.sink.cancel_all();
    wait_until([&] { return server.hung_up() == 3; });
    sender.sink.poll(results);
    EXPECT_TRUE(results.empty());
    {
        const std::lock_guard lock(mutex);
        hangs = false;
    }
    EXPECT_EQ(sender.try_one(4).status, DeliveryStatus::delivered);
    EXPECT_EQ(server.requests().back().body, make_event(4).payload);
}

TEST(HttpSink, AnAnswerBeforeCancelAllHasNoResult)
{
    const Server server(always(status(200)));
    Sender sender(config_for(server));
    sender.send(1, {make_event(1)});
    sender.sink.flush();
    std::this_thread::sleep_for(20ms);
    sender.sink.cancel_all();
    EXPECT_EQ(sender.try_one(2).status, DeliveryStatus::delivered);
}

// ---- private addresses and secrets

TEST(HttpSink, APrivateAddressIsNotConnectedIfPrivateAddressesAreDenied)
{
    const Server server(always(status(200)));
    Sender sender(config_for(server), "", {"/test", HostAllowlist(""), true});
    for (int id = 1; id <= 2; ++id) {
        const DeliveryResult result = sender.try_one(id);
        EXPECT_EQ(result.status, DeliveryStatus::unavailable);
        EXPECT_FALSE(result.may_be_event_fault);
        EXPECT_NE(result.reason.find("outbox.http_deny_private"), std::string::npos)
            << result.reason;
    }
    EXPECT_EQ(server.connections(), 0);
}

TEST(HttpSink, SecretsInAnAnswerAreRedacted)
{
    const Server server([](const Request& request) {
        return status(422, "you said " + request.header("authorization") + " to " + request.line);
    });
    HttpConfig config = config_for(server);
    config.url = server.url("/hunter2/x");
    config.headers = {{"Authorization", "Bearer s3cr3t-t0ken"}};
    const DeliveryResult result =
        Sender(config, "path = hunter2\ntoken = s3cr3t-t0ken\n").try_one();
    EXPECT_EQ(result.reason, "HTTP 422: you said Bearer *** to POST /***/x HTTP/1.1");
}

TEST(HttpSink, SecretsInAnErrorOfLibcurlAreRedacted)
{
    HttpConfig config;
    config.url = "http://hunter2.invalid.:1/";
    config.proxy = "http://127.0.0.1:1";
    const DeliveryResult result = Sender(config, "host = 127.0.0.1\n").try_one();
    EXPECT_EQ(result.status, DeliveryStatus::unavailable);
    EXPECT_EQ(result.reason.find("127.0.0.1"), std::string::npos) << result.reason;
    EXPECT_NE(result.reason.find("***"), std::string::npos) << result.reason;
}

// The kept part of the answer may end in the middle of a secret.
TEST(HttpSink, ASecretThatIsCutAtTheEndOfAReasonIsRedacted)
{
    const std::string secret = "s3cr3t-t0ken-of-some-length";
    for (std::size_t before = 480; before < 540; ++before) {
        const Server server(always(status(422, std::string(before, '.') + secret)));
        const DeliveryResult result =
            Sender(config_for(server), "token = " + secret + "\n").try_one();
        ASSERT_EQ(result.reason.find("s3cr"), std::string::npos) << result.reason;
    }
}

TEST(HttpSink, AReasonHasNoControlCharactersAndNoInvalidUtf8)
{
    const DeliveryResult result = result_of(status(400, "a\x1B[31m\xFF\n\0b\t"s));
    EXPECT_EQ(result.reason, "HTTP 400: a [31m?  b");
}

} // namespace
