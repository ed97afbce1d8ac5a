#pragma once

#include "sink/config/json_config.hpp"
#include "sink/config/secrets.hpp"
#include "sink/kafka/topic_template.hpp"

#include <memory>

struct rd_kafka_conf_s;

namespace outbox::sink {

// Format of the records.
enum class KafkaFormat {
    cloudevents, // attributes in headers, the payload is the value
    debezium,    // the format of Debezium's outbox event router
};

// Config of a Kafka sink. Values may contain ${secret:name} until resolve() has replaced them.
struct KafkaConfig {
    TopicTemplate topic;
    KafkaFormat format = KafkaFormat::cloudevents;
    std::vector<std::string> metadata_keys; // metadata keys that are sent as ce_<key>
    int timeout_ms = 30'000;                // wait for a delivery, see session_timeout()
    std::size_t max_in_flight = 10'000;     // queue.buffering.max.messages
    std::size_t batch_size = 1'000'000;     // batch.size in bytes
    JsonConfig::Pairs properties;           // of librdkafka, as the user set them
};

// Raises 22023 for a config that cannot work, that would lose the order of events, store a
// credential in the catalog, or run code or send files of the server. The message for a property
// that librdkafka refuses is librdkafka's.
KafkaConfig parse_kafka_config(const JsonConfig& config);

// Replaces all references to secrets. Raises 42704 for an unknown secret. The values are checked by
// make_conf().
KafkaConfig resolve(KafkaConfig config, const Secrets& secrets);

// Deleter of a configuration of librdkafka.
struct FreeKafkaConf {
    void operator()(rd_kafka_conf_s* conf) const;
};
using KafkaConf = std::unique_ptr<rd_kafka_conf_s, FreeKafkaConf>;

// Makes the configuration for librdkafka: defaults of the sink, then the user's properties, then
// the fixed properties. A value with an unresolved ${secret:name} is left out. Raises 22023 for a
// property that librdkafka refuses; the message may contain its value.
KafkaConf make_conf(const KafkaConfig& config);

} // namespace outbox::sink
