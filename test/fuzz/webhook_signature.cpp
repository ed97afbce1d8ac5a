// Webhook secrets and signatures, checked against OpenSSL's older interface.
#include "sink/format/webhook_signature.hpp"

#include "core/parse_number.hpp"
#include "fuzz.hpp"
#include "sink/format/encoding.hpp"

#include <openssl/hmac.h>

namespace outbox::fuzz {

std::string sign(const std::vector<unsigned char>& key, std::string_view text)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
         reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest, &size);
    return "v1," + sink::to_base64({digest, size});
}

void try_one(std::string_view input)
{
    const auto parts = split<4>(input, '\n');
    const std::string_view secret = parts[0];
    const std::string_view id = parts[1];
    const std::string_view body = parts[3];
    const std::int64_t time = parse_bigint(parts[2]).value_or(0);
    std::string signature;
    const auto error =
        error_of([&] { signature = sink::WebhookSecret::parse(secret).sign(id, time, body); });
    if (error) {
        must(std::string_view(error->sqlstate()) == "22023", "a bad secret is a bad value");
        const auto other = error_of([] { (void)sink::WebhookSecret::parse(""); });
        must(std::string_view(error->what()) == other->what(),
             "every secret is refused with the same message");
        return;
    }
    must(secret.starts_with("whsec_"), "a secret has the prefix whsec_");
    const auto key = sink::from_base64(secret.substr(6));
    must(key && key->size() >= 24 && key->size() <= 64, "a key has 24 to 64 bytes");
    must(signature ==
             sign(*key, std::string(id) + "." + std::to_string(time) + "." + std::string(body)),
         "the signature covers id, time and body");
    must(is_visible_ascii(signature), "a signature fits into a header");
}

} // namespace outbox::fuzz
