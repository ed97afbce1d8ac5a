#include "sink/kafka/kafka_config.hpp"

#include "sink_config_cases.hpp"

#include <gtest/gtest.h>

#include <librdkafka/rdkafka.h>

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;
using namespace std::string_literals;

KafkaConfig parse(const std::string& json)
{
    return parse_kafka_config(JsonConfig::parse(json));
}

// A config with the required keys and the members under test.
KafkaConfig with(const std::string& members)
{
    return parse(R"({"bootstrap.servers": "broker:9092", "topic": "t", )" + members + "}");
}

KafkaConfig with_property(const std::string& name, const std::string& value)
{
    return with("\"" + name + "\": \"" + value + "\"");
}

// Value of a property that the sink sets in librdkafka, or librdkafka's default.
std::string property_of(const KafkaConfig& config, const char* name)
{
    const KafkaConf conf = make_conf(config);
    char value[512];
    std::size_t size = sizeof(value);
    return rd_kafka_conf_get(conf.get(), name, value, &size) == RD_KAFKA_CONF_OK ? value
                                                                                 : "(nothing)";
}

// ---- keys of the sink

TEST(KafkaConfig, ServersAndTopicAreRequired)
{
    const KafkaConfig config = parse(R"({"bootstrap.servers": "broker:9092", "topic": "t"})");
    EXPECT_EQ(config.format, KafkaFormat::cloudevents);
    EXPECT_TRUE(config.metadata_keys.empty());
    EXPECT_EQ(config.timeout_ms, 30'000);
    EXPECT_EQ(config.max_in_flight, 10'000u);
    EXPECT_EQ(config.batch_size, 1'000'000u);
    EXPECT_EQ(config.properties, (JsonConfig::Pairs{{"bootstrap.servers", "broker:9092"}}));
    EXPECT_REFUSED(parse(R"({"topic": "t"})"), "\"bootstrap.servers\" is missing");
    EXPECT_REFUSED(parse(R"({"topic": "t", "bootstrap.servers": ""})"), "is missing");
    EXPECT_REFUSED(parse(R"({"bootstrap.servers": "broker"})"), "\"topic\" is missing");
    EXPECT_NO_THROW(parse(R"({"metadata.broker.list": "broker", "topic": "t"})"));
    EXPECT_NO_THROW(parse(R"({"test.mock.num.brokers": 1, "topic": "t"})"));
    EXPECT_NO_THROW(parse(R"({"bootstrap.servers": "${secret:servers}", "topic": "t"})"));
}

TEST(KafkaConfig, AllKeysAreAccepted)
{
    const KafkaConfig config = with(
        R"("format": "debezium", "metadata": ["region", "a1"], "timeout": 1.5, "client.id": "x")");
    EXPECT_EQ(config.format, KafkaFormat::debezium);
    EXPECT_EQ(config.metadata_keys, (std::vector<std::string>{"region", "a1"}));
    EXPECT_EQ(config.timeout_ms, 1500);
    EXPECT_EQ(config.properties,
              (JsonConfig::Pairs{{"bootstrap.servers", "broker:9092"}, {"client.id", "x"}}));
}

TEST(KafkaConfig, UnknownFormatsAreRefused)
{
    EXPECT_EQ(with(R"("format": "cloudevents")").format, KafkaFormat::cloudevents);
    for (const char* format : {"", "raw", "Debezium", "cloudevents-batch"})
        EXPECT_REFUSED(with("\"format\": \""s + format + "\""), "must be cloudevents or debezium");
    EXPECT_REFUSED(with(R"("format": 1)"), "must be a string");
}

TEST(KafkaConfig, TheDebeziumFormatHasADefaultTopic)
{
    Event event;
    event.aggregate_type = "order";
    std::string topic;
    parse(R"({"bootstrap.servers": "b", "format": "debezium"})").topic.apply(event, topic);
    EXPECT_EQ(topic, "outbox.event.order");
    parse(R"({"bootstrap.servers": "b", "format": "debezium", "topic": "x.{aggregate_type}"})")
        .topic.apply(event, topic);
    EXPECT_EQ(topic, "x.order");
}

TEST(KafkaConfig, InvalidTopicsAreRefused)
{
    for (const char* topic : {"", ".", "a b", "{payload}", "{aggregate_type", "é"})
        EXPECT_REFUSED(parse(R"({"bootstrap.servers": "b", "topic": ")"s + topic + "\"}"),
                       "config key \"topic\"")
            << topic;
    EXPECT_REFUSED(parse(R"({"bootstrap.servers": "b", "topic": 1})"), "must be a string");
}

TEST(KafkaConfig, ATimeoutOutOfRangeIsRefused)
{
    EXPECT_EQ(with(R"("timeout": 1)").timeout_ms, 1000);
    EXPECT_EQ(with(R"("timeout": 600)").timeout_ms, 600'000);
    for (const char* value : {"0", "0.999", "600.001", "-1", "\"30\"", "null"})
        EXPECT_REFUSED(with("\"timeout\": "s + value),
                       "\"timeout\" must be a number from 1 to 600");
}

TEST(KafkaConfig, MetadataNamesMustBeFreeCloudEventsAttributeNames)
{
    for (const char* name : {"", "Region", "user_id", "é"})
        EXPECT_REFUSED(with("\"metadata\": [\""s + name + "\"]"), "invalid name of a CloudEvents")
            << name;
    EXPECT_REFUSED(with(R"("metadata": ["id"])"), "set by the sink itself");
    EXPECT_REFUSED(with(R"("metadata": ["a", "a"])"), "twice");
    EXPECT_REFUSED(with(R"("metadata": "a")"), "array of strings");
}

// ---- properties of librdkafka

TEST(KafkaConfig, PropertiesArePassedToLibrdkafka)
{
    const KafkaConfig config =
        with(R"("security.protocol": "sasl_ssl", "linger.ms": 50, "compression.type": "zstd",
                "enable.ssl.certificate.verification": false, "socket.send.buffer.bytes": 65536,
                "partitioner": "fnv1a", "client.id": "shop")");
    EXPECT_EQ(property_of(config, "bootstrap.servers"), "broker:9092");
    EXPECT_EQ(property_of(config, "security.protocol"), "sasl_ssl");
    EXPECT_EQ(property_of(config, "linger.ms"), "50");
    EXPECT_EQ(property_of(config, "compression.type"), "zstd");
    EXPECT_EQ(property_of(config, "enable.ssl.certificate.verification"), "false");
    EXPECT_EQ(property_of(config, "socket.send.buffer.bytes"), "65536");
    EXPECT_EQ(property_of(config, "partitioner"), "fnv1a");
    EXPECT_EQ(property_of(config, "client.id"), "shop");
}

TEST(KafkaConfig, DefaultsIncludeThePartitionerOfJavaClients)
{
    const KafkaConfig config = with_property("client.rack", "r");
    EXPECT_EQ(property_of(config, "partitioner"), "murmur2_random");
    EXPECT_EQ(property_of(config, "compression.type"), "lz4");
    EXPECT_EQ(property_of(config, "linger.ms"), "0");
    EXPECT_EQ(property_of(config, "client.id"), "outbox");
}

TEST(KafkaConfig, AliasesOfPropertiesAreAccepted)
{
    EXPECT_EQ(property_of(with_property("compression.codec", "gzip"), "compression.type"), "gzip");
    EXPECT_EQ(property_of(with_property("queue.buffering.max.ms", "7"), "linger.ms"), "7");
}

TEST(KafkaConfig, PropertiesThatTheSinkReliesOnAreFixed)
{
    const KafkaConfig config = with_property("client.rack", "r");
    EXPECT_EQ(property_of(config, "enable.idempotence"), "true");
    EXPECT_EQ(property_of(config, "enable.gapless.guarantee"), "true");
    EXPECT_EQ(property_of(config, "message.timeout.ms"), "0");
    EXPECT_EQ(property_of(config, "log.queue"), "true");
    for (const char* name :
         {"enable.idempotence", "enable.gapless.guarantee", "message.timeout.ms",
          "delivery.timeout.ms", "retries", "message.send.max.retries", "acks",
          "request.required.acks", "transactional.id", "transaction.timeout.ms", "log.queue",
          "statistics.interval.ms", "delivery.report.only.error", "queue.buffering.max.kbytes"})
        for (const char* value : {"true", "1", "${secret:x}"})
            EXPECT_REFUSED(with_property(name, value), "\""s + name + "\" is set by the sink");
}

TEST(KafkaConfig, PropertiesThatRunCodeAreRefused)
{
    for (const char* name :
         {"plugin.library.paths", "ssl.engine.location", "ssl.engine.id", "ssl.providers",
          "sasl.kerberos.kinit.cmd", "internal.termination.signal", "ut_handle_ProduceResponse"})
        for (const char* value : {"", "1", "/tmp/x.so", "${secret:x}"})
            EXPECT_REFUSED(with_property(name, value), "\""s + name + "\" is not allowed");
}

TEST(KafkaConfig, PropertiesThatSendFilesOfTheServerAreRefused)
{
    for (const char* name :
         {"sasl.oauthbearer.assertion.file", "sasl.oauthbearer.assertion.private.key.file",
          "sasl.oauthbearer.assertion.jwt.template.file"})
        for (const char* value : {"", "/etc/passwd", "${secret:x}"})
            EXPECT_REFUSED(with_property(name, value), "\""s + name + "\" is not allowed");
}

// librdkafka runs kinit in a shell, with the principal in its command line.
TEST(KafkaConfig, KinitIsNeverRun)
{
    const KafkaConfig config =
        with(R"x("sasl.mechanism": "GSSAPI", "sasl.kerberos.principal": "$(reboot)")x");
    EXPECT_EQ(property_of(config, "sasl.kerberos.min.time.before.relogin"), "0");
    EXPECT_REFUSED(with_property("sasl.kerberos.min.time.before.relogin", "60000"),
                   "is set by the sink itself");
}

TEST(KafkaConfig, PartitionersThatIgnoreTheKeyAreRefused)
{
    for (const char* scattered : {"random", "Murmur2", ""})
        EXPECT_REFUSED(with_property("partitioner", scattered),
                       "must be a partitioner that uses the key");
    for (const char* name : {"consistent", "consistent_random", "murmur2", "fnv1a_random"})
        EXPECT_EQ(property_of(with_property("partitioner", name), "partitioner"), name);
}

// librdkafka would use the text as an address.
TEST(KafkaConfig, PropertiesThatTakeAFunctionAreRefused)
{
    for (const char* name : {"error_cb",
                             "throttle_cb",
                             "stats_cb",
                             "log_cb",
                             "background_event_cb",
                             "socket_cb",
                             "connect_cb",
                             "closesocket_cb",
                             "open_cb",
                             "resolve_cb",
                             "opaque",
                             "default_topic_conf",
                             "ssl_engine_callback_data",
                             "ssl.certificate.verify_cb",
                             "oauthbearer_token_refresh_cb",
                             "consume_cb",
                             "rebalance_cb",
                             "offset_commit_cb",
                             "dr_cb",
                             "dr_msg_cb",
                             "partitioner_cb",
                             "msg_order_cmp",
                             "ssl_key",
                             "ssl_certificate",
                             "ssl_ca",
                             "interceptors"})
        EXPECT_REFUSED(with_property(name, "x"), "config key \""s + name + "\": ");
}

TEST(KafkaConfig, PropertiesRefusedByLibrdkafkaAreRefusedWithItsMessage)
{
    EXPECT_REFUSED(with_property("no.such.thing", "1"),
                   "config key \"no.such.thing\": No such configuration property");
    EXPECT_REFUSED(with_property("no.such.thing", "${secret:x}"), "No such configuration property");
    EXPECT_REFUSED(with_property("no.such.thing", "1"), "and those of librdkafka.");
    EXPECT_REFUSED(with_property("Linger.ms", "1"), "No such configuration property");
    EXPECT_REFUSED(with_property("", "1"), "No such configuration property");
    EXPECT_REFUSED(with_property("linger.ms", "soon"), "Invalid value");
    EXPECT_REFUSED(with_property("linger.ms", "-1"), "outside allowed range 0..900000|");
    EXPECT_REFUSED(with_property("compression.type", "rar"), "Invalid value \"rar\"");
    EXPECT_REFUSED(with_property("security.protocol", "none"), "Invalid value");
    EXPECT_REFUSED(with(R"("enable.ssl.certificate.verification": "maybe")"), "Expected bool");
}

TEST(KafkaConfig, ValuesOfPropertiesMustBeScalars)
{
    for (const char* value : {"null", "[]", "{}", "[1]", "{\"a\": 1}"})
        EXPECT_REFUSED(with("\"client.rack\": "s + value),
                       "\"client.rack\" must be a string, a number or a boolean");
    EXPECT_REFUSED(with(R"("client.rack": "a\u0000b")"), "NUL");
}

TEST(KafkaConfig, TheQueueLimitsTheRecordsInFlight)
{
    const auto window = [](const std::string& value) {
        const KafkaConfig config = with("\"queue.buffering.max.messages\": " + value);
        EXPECT_EQ(property_of(config, "queue.buffering.max.messages"),
                  std::to_string(config.max_in_flight));
        return config.max_in_flight;
    };
    EXPECT_EQ(window("1"), 1u);
    EXPECT_EQ(window("500"), 500u);
    EXPECT_EQ(window("\"500\""), 500u);
    EXPECT_EQ(window("10000"), 10'000u);
    EXPECT_EQ(window("1000000"), 10'000u);
    EXPECT_EQ(window("0"), 10'000u); // 0 is "no limit" in librdkafka
    EXPECT_REFUSED(window("-1"), "outside allowed range");
}

TEST(KafkaConfig, TheBatchSizeIsConfigurable)
{
    const KafkaConfig config = with(R"("batch.size": 16384)");
    EXPECT_EQ(config.batch_size, 16'384u);
    EXPECT_EQ(property_of(config, "batch.size"), "16384");
    EXPECT_REFUSED(with(R"("batch.size": 0)"), "outside allowed range");
    EXPECT_REFUSED(with(R"("batch.size": 99999999999999)"), "outside allowed range");
}

// ---- secrets

TEST(KafkaConfig, CredentialsComeFromSecrets)
{
    for (const char* name : {"sasl.password", "ssl.key.password", "ssl.keystore.password",
                             "ssl.key.pem", "sasl.oauthbearer.config"}) {
        EXPECT_REFUSED(with_property(name, "hunter2"), "must take its value from a secret") << name;
        EXPECT_REFUSED(with_property(name, ""), "must take its value from a secret") << name;
        EXPECT_REFUSED(with_property(name, "hunter2"), "${secret:name}");
        EXPECT_NO_THROW(with_property(name, "${secret:x}")) << name;
    }
    for (const char* name :
         {"sasl.oauthbearer.client.secret", "sasl.oauthbearer.assertion.private.key.pem",
          "sasl.oauthbearer.assertion.private.key.passphrase"})
        EXPECT_REFUSED(with_property(name, "hunter2"), "must take its value from a secret") << name;
    for (const char* url : {"https://user:hunter2@idp/", "https:/user:hunter2@idp/?x://y",
                            "https://hunter2@idp/", "https://${secret:u}:hunter2@idp"}) {
        const char* name = "sasl.oauthbearer.token.endpoint.url";
        EXPECT_REFUSED(with_property(name, url), "must not contain a password") << url;
        EXPECT_EQ(refusal([&] { with_property(name, url); }).find("hunter2"), std::string::npos);
    }
    // Some versions of librdkafka do not have this property.
    for (const char* url : {"https://idp/token?a@b", "https://user:${secret:x}@idp/"})
        EXPECT_EQ(refusal([&] {
                      with_property("sasl.oauthbearer.token.endpoint.url", url);
                  }).find("must not"),
                  std::string::npos)
            << url;
    for (const char* name : {"sasl.username", "ssl.ca.location", "ssl.certificate.pem"})
        EXPECT_NO_THROW(with_property(name, "x")) << name;
}

TEST(KafkaConfig, NoErrorRepeatsAPassword)
{
    for (const char* name :
         {"sasl.password", "ssl.key.pem", "sasl.pasword", "sasl.jaas.config", "ssl_key",
          "enable.idempotence", "plugin.library.paths", "error_cb", "linger.ms", "timeout",
          "metadata", "topic", "format", "no.password.of.librdkafka"}) {
        const std::string message = refusal([&] { with_property(name, "{hunter2"); });
        EXPECT_NE(message, "") << name;
        EXPECT_EQ(message.find("hunter2"), std::string::npos) << message;
    }
    for (const char* json : {R"({"sasl.password": "hunter2)", R"({"sasl.password": ["hunter2"]})",
                             R"({"sasl.password": {"hunter2": 1}, "bootstrap.servers": "b"})"})
        EXPECT_EQ(refusal([&] { parse(json); }).find("hunter2"), std::string::npos);
}

TEST(KafkaConfig, MalformedReferencesAreRefused)
{
    for (const char* value : {"${secret:", "${secret:}", "a${secret:x", "${secret:a b}"})
        EXPECT_REFUSED(with_property("sasl.password", value), "malformed");
}

TEST(KafkaConfig, AValueWithAReferenceIsCheckedAfterResolve)
{
    const KafkaConfig config = with(R"("compression.type": "${secret:codec}", "linger.ms": 3)");
    EXPECT_EQ(property_of(config, "compression.type"), "lz4");
    EXPECT_EQ(property_of(config, "linger.ms"), "3");
    const auto codec = [&](const std::string& value) {
        return property_of(resolve(config, Secrets::parse("codec = " + value + "\n")),
                           "compression.type");
    };
    EXPECT_EQ(codec("zstd"), "zstd");
    EXPECT_REFUSED(codec("rar"), "Invalid value");
}

TEST(KafkaConfig, ResolveReplacesEveryReference)
{
    const KafkaConfig config =
        resolve(parse(R"({"bootstrap.servers": "${secret:host}:9092", "topic": "t",
                          "sasl.username": "u", "sasl.password": "${secret:pw}"})"),
                Secrets::parse("host = broker\npw = hunter2\n"));
    EXPECT_EQ(property_of(config, "bootstrap.servers"), "broker:9092");
    EXPECT_EQ(property_of(config, "sasl.username"), "u");
    EXPECT_EQ(property_of(config, "sasl.password"), "hunter2");
}

TEST(KafkaConfig, AnErrorNamesTheUnknownSecret)
{
    try {
        resolve(with_property("sasl.password", "${secret:nobody}"), Secrets::parse(""));
        ADD_FAILURE();
    } catch (const outbox::Error& error) {
        EXPECT_STREQ(error.sqlstate(), "42704");
        EXPECT_NE(std::string(error.what()).find("nobody"), std::string::npos);
    }
}

} // namespace
