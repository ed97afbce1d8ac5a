#include "sink/format/webhook_signature.hpp"

#include "core/error.hpp"
#include "sink/format/encoding.hpp"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <array>
#include <memory>

namespace outbox::sink {

namespace {

// Sizes of a key, as Standard Webhooks requires.
constexpr std::size_t min_key_bytes = 24;
constexpr std::size_t max_key_bytes = 64;

struct FreeMac {
    void operator()(EVP_MAC* mac) const { EVP_MAC_free(mac); }
    void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
};

// Incremental HMAC-SHA256, so that the signed text need not be concatenated with the body.
// Raises XX000 if OpenSSL fails.
class Hmac {
public:
    explicit Hmac(const std::vector<unsigned char>& key)
        : mac_(EVP_MAC_fetch(nullptr, "HMAC", nullptr)), context_(EVP_MAC_CTX_new(mac_.get()))
    {
        char digest[] = "SHA256";
        const OSSL_PARAM parameters[] = {
            OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
            OSSL_PARAM_construct_end()};
        check(context_ && EVP_MAC_init(context_.get(), key.data(), key.size(), parameters));
    }

    void add(std::string_view text)
    {
        check(EVP_MAC_update(context_.get(), reinterpret_cast<const unsigned char*>(text.data()),
                             text.size()));
    }

    std::array<unsigned char, 32> finish()
    {
        std::array<unsigned char, 32> digest;
        std::size_t size = 0;
        check(EVP_MAC_final(context_.get(), digest.data(), &size, digest.size()) &&
              size == digest.size());
        return digest;
    }

private:
    static void check(bool ok)
    {
        if (!ok)
            throw Error("XX000", "could not compute HMAC-SHA256");
    }

    std::unique_ptr<EVP_MAC, FreeMac> mac_;
    std::unique_ptr<EVP_MAC_CTX, FreeMac> context_;
};

} // namespace

WebhookSecret WebhookSecret::parse(std::string_view whsec)
{
    if (whsec.starts_with(prefix)) {
        auto key = from_base64(whsec.substr(prefix.size()));
        if (key && key->size() >= min_key_bytes && key->size() <= max_key_bytes)
            return WebhookSecret(std::move(*key));
    }
    throw Error("22023", "a webhook secret must be whsec_ and the base64 of 24 to 64 bytes", {},
                "Make one with: echo \"whsec_$(openssl rand -base64 32)\"");
}

std::string WebhookSecret::sign(std::string_view id, std::int64_t timestamp,
                                std::string_view body) const
{
    Hmac hmac(key_);
    hmac.add(id);
    hmac.add("." + std::to_string(timestamp) + ".");
    hmac.add(body);
    return "v1," + to_base64(hmac.finish());
}

} // namespace outbox::sink
