#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace outbox::sink {

// Symmetric key that signs requests by the Standard Webhooks specification.
class WebhookSecret {
public:
    static constexpr std::string_view prefix = "whsec_";

    // Parses `whsec_` and the base64 of 24 to 64 bytes. Raises 22023 for other text; the message
    // has no key.
    static WebhookSecret parse(std::string_view whsec);

    // Returns `v1,<base64>` for the webhook-signature header, with the HMAC-SHA256 of
    // `<id>.<timestamp>.<body>`. The timestamp is in unix seconds. Raises XX000 if OpenSSL fails.
    std::string sign(std::string_view id, std::int64_t timestamp, std::string_view body) const;

private:
    explicit WebhookSecret(std::vector<unsigned char> key) : key_(std::move(key)) {}

    std::vector<unsigned char> key_;
};

} // namespace outbox::sink
