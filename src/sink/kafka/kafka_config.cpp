#include "sink/kafka/kafka_config.hpp"

#include "core/error.hpp"
#include "sink/config/url_userinfo.hpp"
#include "sink/format/cloudevents.hpp"

#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <cmath>

namespace outbox::sink {

namespace {

// Keys of the sink. All other keys are properties of librdkafka.
constexpr std::string_view sink_keys[] = {"topic", "format", "metadata", "timeout"};

constexpr const char* default_debezium_topic = "outbox.event.{aggregate_type}";

// Properties that only the sink sets: order and exactly-once within a session depend on them, or
// the sink relies on their values.
constexpr std::string_view fixed_properties[] = {
    "enable.idempotence",
    "enable.gapless.guarantee",
    "message.timeout.ms",
    "delivery.timeout.ms",
    "retries",
    "message.send.max.retries",
    "acks",
    "request.required.acks",
    "transactional.id",
    "transaction.timeout.ms",
    "log.queue",
    "statistics.interval.ms",
    "delivery.report.only.error",
    "queue.buffering.max.kbytes",
    "sasl.kerberos.min.time.before.relogin",
};

// Properties that run code or commands as the server's user, that take an address of a function as
// text, or that replace a signal handler.
constexpr std::string_view forbidden_properties[] = {
    "plugin.library.paths",
    "ssl.engine.location",
    "ssl.engine.id",
    "ssl.providers",
    "sasl.kerberos.kinit.cmd",
    "internal.termination.signal",
    "ut_handle_ProduceResponse",
};

// A property whose name contains one of these words has a credential.
constexpr std::string_view credential_words[] = {"password", "passphrase", "secret", "key.pem",
                                                 "sasl.oauthbearer.config"};

template <typename Range>
bool is_one_of(std::string_view text, const Range& range)
{
    return std::ranges::find(range, text) != std::end(range);
}

// Raises 22023.
[[noreturn]] void refuse(const std::string& message, const std::string& hint = {})
{
    throw Error("22023", message, {}, hint);
}

// Sets a property. Raises 22023 with the message of librdkafka, which may contain the value.
void set_property(rd_kafka_conf_t* conf, const std::string& name, const std::string& value)
{
    // The buffer has room for the value: a secret that is cut would not be redacted.
    std::vector<char> problem(512 + value.size());
    if (rd_kafka_conf_set(conf, name.c_str(), value.c_str(), problem.data(), problem.size()) ==
        RD_KAFKA_CONF_OK)
        return;
    std::string text = problem.data();
    if (text.ends_with('\n'))
        text.pop_back();
    refuse("config key \"" + name + "\": " + text,
           "The keys are topic, format, metadata, timeout, and those of librdkafka.");
}

// Returns true if librdkafka has a property of this name.
bool is_known(rd_kafka_conf_t* conf, const std::string& name)
{
    std::size_t size = 0;
    return rd_kafka_conf_get(conf, name.c_str(), nullptr, &size) == RD_KAFKA_CONF_OK;
}

// Returns true if a property of this name has a credential as its value.
bool is_credential(std::string_view name)
{
    return std::ranges::any_of(credential_words, [&](std::string_view word) {
        return name.find(word) != std::string_view::npos;
    });
}

// Partitioners that use the key. Others would distribute the events of an aggregate over partitions
// and so lose their order.
constexpr std::string_view keyed_partitioners[] = {
    "consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"};

// Raises 22023 for a property that the sink sets itself, that would lose the order of events, run
// code or send a file, for a literal credential, and for a malformed reference.
void check_property(const std::string& name, const std::string& value)
{
    if (name == "partitioner" && !is_one_of(value, keyed_partitioners))
        refuse("config key \"partitioner\" must be a partitioner that uses the key",
               "Use murmur2_random, for example, which places records as Java clients do.");
    check_references(value);
    if (is_one_of(name, fixed_properties))
        refuse("config key \"" + name + "\" is set by the sink itself");
    if (is_one_of(name, forbidden_properties))
        refuse("config key \"" + name + "\" is not allowed",
               "Remove the key: this property would run code in the server.");
    // librdkafka sends the content of these files to an OAuth token endpoint, which can be any URL.
    if (name.ends_with(".file"))
        refuse("config key \"" + name + "\" is not allowed",
               "This property would send a file of the server. Use a property that takes the "
               "content instead, with a ${secret:name}.");
    if (is_credential(name) && !has_secret_reference(value))
        refuse("config key \"" + name + "\" must take its value from a secret",
               secret_reference_hint);
    if (name.ends_with(".url") && has_literal_password(value))
        refuse("config key \"" + name + "\" must not contain a password", secret_reference_hint);
}

// Raises 22023 for an unknown format.
KafkaFormat parse_format(const std::string& text)
{
    if (text == "cloudevents")
        return KafkaFormat::cloudevents;
    if (text == "debezium")
        return KafkaFormat::debezium;
    refuse("config key \"format\" must be cloudevents or debezium");
}

// Returns the user's value of a numeric property, of which 12 digits count; std::nullopt: absent,
// or not a number.
std::optional<std::size_t> count_property(const KafkaConfig& config, std::string_view name)
{
    std::optional<std::size_t> count;
    for (const auto& [key, value] : config.properties)
        if (key == name && !value.empty() &&
            std::ranges::all_of(value, [](char c) { return c >= '0' && c <= '9'; }))
            count = std::stoull(value.substr(0, 12));
    return count;
}

// Sets the topic of `parsed`, whose format must be set: debezium has a default topic. Raises 22023
// for a missing or invalid topic.
void parse_topic(const JsonConfig& config, KafkaConfig& parsed)
{
    auto topic = config.text("topic");
    if (!topic && parsed.format == KafkaFormat::debezium)
        topic = default_debezium_topic;
    if (!topic)
        refuse("config key \"topic\" is missing", "For example \"shop.{aggregate_type}\".");
    parsed.topic = TopicTemplate::parse(*topic);
}

} // namespace

void FreeKafkaConf::operator()(rd_kafka_conf_s* conf) const
{
    rd_kafka_conf_destroy(conf);
}

KafkaConfig parse_kafka_config(const JsonConfig& config)
{
    KafkaConfig parsed;
    parsed.format = parse_format(config.text("format").value_or("cloudevents"));
    parse_topic(config, parsed);
    parsed.metadata_keys = config.text_list("metadata");
    check_metadata_keys(parsed.metadata_keys);
    if (const auto seconds = config.number("timeout", 1, 600))
        parsed.timeout_ms = static_cast<int>(std::lround(*seconds * 1000));
    parsed.properties = config.all_as_text(sink_keys);
    for (const auto& [name, value] : parsed.properties)
        check_property(name, value);
    const auto is_given = [&](std::string_view name) {
        return std::ranges::any_of(parsed.properties, [&](const auto& property) {
            return property.first == name && !property.second.empty();
        });
    };
    if (!is_given("bootstrap.servers") && !is_given("metadata.broker.list") &&
        !is_given("test.mock.num.brokers"))
        refuse("config key \"bootstrap.servers\" is missing");
    // 0 means no limit to librdkafka; the default remains then.
    if (const auto count = count_property(parsed, "queue.buffering.max.messages");
        count.value_or(0) > 0)
        parsed.max_in_flight = std::min(*count, parsed.max_in_flight);
    if (const auto size = count_property(parsed, "batch.size"))
        parsed.batch_size = *size;
    (void)make_conf(parsed);
    return parsed;
}

KafkaConfig resolve(KafkaConfig config, const Secrets& secrets)
{
    for (auto& [name, value] : config.properties)
        value = secrets.resolve(value);
    return config;
}

KafkaConf make_conf(const KafkaConfig& config)
{
    KafkaConf conf(rd_kafka_conf_new());
    set_property(conf.get(), "client.id", "outbox");
    // The default of Java clients: equal keys get equal partitions. librdkafka's default differs.
    set_property(conf.get(), "partitioner", "murmur2_random");
    set_property(conf.get(), "compression.type", "lz4");
    set_property(conf.get(), "linger.ms", "0");
    set_property(conf.get(), "topic.metadata.propagation.max.ms", "10000");
    set_property(conf.get(), "reconnect.backoff.max.ms", "1000");
    set_property(conf.get(), "retry.backoff.ms", "50");
    for (const auto& [name, value] : config.properties) {
        // An unresolved value cannot be checked. An unknown name is set all the same, so that
        // librdkafka refuses it.
        if (!has_secret_reference(value) || !is_known(conf.get(), name))
            set_property(conf.get(), name, value);
    }
    set_property(conf.get(), "batch.size", std::to_string(config.batch_size));
    set_property(conf.get(), "queue.buffering.max.messages", std::to_string(config.max_in_flight));
    set_property(conf.get(), "queue.buffering.max.kbytes",
                 "2147483647"); // the maximum: outbox.relay_memory is the limit
    set_property(conf.get(), "enable.idempotence", "true");
    // A record that fails permanently ends the session before a later record is sent.
    set_property(conf.get(), "enable.gapless.guarantee", "true");
    // Records never time out one by one, which would leave a gap: the sink ends the whole session,
    // see KafkaSink::session_timeout().
    set_property(conf.get(), "message.timeout.ms", "0");
    set_property(conf.get(), "log.queue", "true");
    // 0 disables kinit, which librdkafka runs by a shell with the unquoted principal; an empty
    // kinit command would mean the default one. Fails in a librdkafka without Kerberos: ignored.
    (void)rd_kafka_conf_set(conf.get(), "sasl.kerberos.min.time.before.relogin", "0", nullptr, 0);
    return conf;
}

} // namespace outbox::sink
