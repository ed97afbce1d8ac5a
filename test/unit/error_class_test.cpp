#include "sink/kafka/error_class.hpp"

#include <gtest/gtest.h>

namespace {

using namespace outbox::sink;

constexpr rd_kafka_resp_err_t about_size[] = {
    RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
    RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE,
    RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE,
};

constexpr rd_kafka_resp_err_t about_content[] = {
    RD_KAFKA_RESP_ERR_INVALID_MSG,
    RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP,
    RD_KAFKA_RESP_ERR_INVALID_RECORD,
};

constexpr rd_kafka_resp_err_t about_the_session[] = {
    RD_KAFKA_RESP_ERR__PURGE_QUEUE,
    RD_KAFKA_RESP_ERR__PURGE_INFLIGHT,
    RD_KAFKA_RESP_ERR__FATAL,
    RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE,
    RD_KAFKA_RESP_ERR__DESTROY,
    RD_KAFKA_RESP_ERR__MSG_TIMED_OUT,
    RD_KAFKA_RESP_ERR__RETRY,
    RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
    RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID,
    RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
};

constexpr rd_kafka_resp_err_t about_the_topic[] = {
    RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC,        RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
    RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
    RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION,
};

constexpr rd_kafka_resp_err_t about_the_sink[] = {
    RD_KAFKA_RESP_ERR__TRANSPORT,
    RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN,
    RD_KAFKA_RESP_ERR__AUTHENTICATION,
    RD_KAFKA_RESP_ERR__SSL,
    RD_KAFKA_RESP_ERR__RESOLVE,
    RD_KAFKA_RESP_ERR__QUEUE_FULL,
    RD_KAFKA_RESP_ERR_UNKNOWN,
    RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED,
    RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
    RD_KAFKA_RESP_ERR_POLICY_VIOLATION,
    RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT,
    RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE,
    static_cast<rd_kafka_resp_err_t>(
        250), // an error code of a newer broker, unknown to the library
};

TEST(KafkaOutcome, ErrorsAboutSizeOrContentHaveClassMessage)
{
    for (const auto error : about_size)
        EXPECT_EQ(classify_error(error), KafkaErrorClass::message) << rd_kafka_err2name(error);
    for (const auto error : about_content)
        EXPECT_EQ(classify_error(error), KafkaErrorClass::message) << rd_kafka_err2name(error);
}

TEST(KafkaOutcome, ErrorsOfTheSessionHaveClassSession)
{
    for (const auto error : about_the_session)
        EXPECT_EQ(classify_error(error), KafkaErrorClass::session) << rd_kafka_err2name(error);
}

TEST(KafkaOutcome, ErrorsOfTheTopicHaveClassTopic)
{
    for (const auto error : about_the_topic)
        EXPECT_EQ(classify_error(error), KafkaErrorClass::topic) << rd_kafka_err2name(error);
}

TEST(KafkaOutcome, AllOtherErrorsHaveClassSink)
{
    for (const auto error : about_the_sink)
        EXPECT_EQ(classify_error(error), KafkaErrorClass::sink) << rd_kafka_err2name(error);
}

TEST(KafkaOutcome, SizeErrorsAreDistinguishedFromOtherErrors)
{
    for (const auto error : about_size)
        EXPECT_TRUE(is_size_error(error)) << rd_kafka_err2name(error);
    for (const auto error : about_content)
        EXPECT_FALSE(is_size_error(error)) << rd_kafka_err2name(error);
    for (const auto error : about_the_session)
        EXPECT_FALSE(is_size_error(error)) << rd_kafka_err2name(error);
    for (const auto error : about_the_sink)
        EXPECT_FALSE(is_size_error(error)) << rd_kafka_err2name(error);
}

} // namespace
