#pragma once

#include "sink/config/json_config.hpp"
#include "sink/config/secrets.hpp"
#include "sink/kafka/topic_template.hpp"

#include <memory>

struct rd_kafka_conf_s;

namespace outbox::sink {

enum class KafkaFormat {
    cloudevents, // attributes in headers, the payload is the value
    debezium,    // what Debezium's outbox event router writes
};

// Where a Kafka sink sends, and how. Strings may refer to secrets until `resolve` has replaced
// them.
struct KafkaConfig {
    TopicTemplate topic;
    KafkaFormat format = KafkaFormat::cloudevents;
    std::vector<std::string> metadata_keys; // keys of the metadata that travel as ce_<key>
    int timeout_ms = 30'000;                // without a sign from the brokers
    std::size_t max_in_flight = 10'000;     // messages that may be on the way
    std::size_t batch_size = 1'000'000;
    JsonConfig::Pairs properties; // of librdkafka, as the user gave them
};

// Throws 22023 for everything that could not work or would keep a password in the catalog; what
// librdkafka does not know, in its own words.
KafkaConfig parse_kafka_config(const JsonConfig& config);

// The config with all references replaced. Throws 42704 for an unknown secret.
KafkaConfig resolve(KafkaConfig config, const Secrets& secrets);

struct FreeKafkaConf {
    void operator()(rd_kafka_conf_s* conf) const;
};
using KafkaConf = std::unique_ptr<rd_kafka_conf_s, FreeKafkaConf>;

// What librdkafka is to be told: the sink's own settings, then the user's, then what no user can
// change. A value that still refers to a secret is left out.
KafkaConf make_conf(const KafkaConfig& config);

} // namespace outbox::sink
