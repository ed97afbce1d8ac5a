#include "sink/format/webhook_signature.hpp"

#include "core/error.hpp"
#include "sink/format/encoding.hpp"

#include <gtest/gtest.h>

namespace {

using outbox::sink::WebhookSecret;

constexpr std::string_view known = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

std::string secret_of(std::size_t size)
{
    return "whsec_" + outbox::sink::to_base64(std::vector<unsigned char>(size, 'k'));
}

TEST(WebhookSignature, MatchesTheExampleOfStandardWebhooks)
{
    const auto secret = WebhookSecret::parse(known);
    EXPECT_EQ(secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1'614'265'330, R"({"test": 2432232314})"),
              "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

TEST(WebhookSignature, DependsOnIdTimestampBodyAndKey)
{
    const auto secret = WebhookSecret::parse(known);
    const std::string signature = secret.sign("id", 1, "body");
    EXPECT_EQ(secret.sign("id", 1, "body"), signature);
    EXPECT_NE(secret.sign("ID", 1, "body"), signature);
    EXPECT_NE(secret.sign("id", 2, "body"), signature);
    EXPECT_NE(secret.sign("id", 1, std::string_view("body\0", 5)), signature);
    EXPECT_NE(WebhookSecret::parse(secret_of(24)).sign("id", 1, "body"), signature);
    EXPECT_EQ(secret.sign("", 0, "").size(), 3u + 44u);
    EXPECT_EQ(secret.sign("id", 1, std::string(10 << 20, 'x')).size(), 3u + 44u);
}

TEST(WebhookSignature, AcceptsKeysOf24To64Bytes)
{
    EXPECT_NO_THROW(WebhookSecret::parse(secret_of(24)));
    EXPECT_NO_THROW(WebhookSecret::parse(secret_of(64)));
    EXPECT_THROW(WebhookSecret::parse(secret_of(23)), outbox::Error);
    EXPECT_THROW(WebhookSecret::parse(secret_of(65)), outbox::Error);
}

TEST(WebhookSignature, RefusesOtherSecretsWithoutRepeatingThem)
{
    const std::string good(known);
    for (const std::string& text :
         {std::string(), std::string("whsec_"), good.substr(6), "WHSEC_" + good.substr(6),
          " " + good, good + "\n", good + "=", good.substr(0, good.size() - 1),
          "whsec_whsec_" + good.substr(6), std::string("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa S"),
          good + std::string(1, '\0')}) {
        try {
            WebhookSecret::parse(text);
            ADD_FAILURE() << text;
        } catch (const outbox::Error& error) {
            EXPECT_STREQ(error.sqlstate(), "22023");
            EXPECT_EQ((error.what() + error.detail() + error.hint()).find("MfKQ"),
                      std::string::npos);
        }
    }
}

} // namespace
