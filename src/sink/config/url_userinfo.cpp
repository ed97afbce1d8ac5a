#include "sink/config/url_userinfo.hpp"

#include "sink/config/secrets.hpp"

#include <algorithm>
#include <string>

namespace outbox::sink {

namespace {

// Placeholder for a reference to a secret; occurs in no valid URL.
constexpr char reference = '\1';

constexpr std::string_view scheme_characters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.\1";

} // namespace

// libcurl takes text before ":/" for the scheme, and accepts one to three slashes.
std::string_view authority_of(std::string_view url)
{
    const auto scheme = std::min(url.find_first_not_of(scheme_characters), url.size());
    if (url.substr(scheme).starts_with(":/"))
        url.remove_prefix(std::min(url.find_first_not_of('/', scheme + 1), url.size()));
    return url.substr(0, url.find_first_of("/?#"));
}

bool has_literal_password(std::string_view url)
{
    const std::string text = mask_references(url, reference);
    const std::string_view authority = authority_of(text);
    const auto at = authority.rfind('@');
    if (at == std::string_view::npos)
        return false;
    const std::string_view userinfo = authority.substr(0, at);
    const auto colon = userinfo.find(':');
    const std::string_view credential =
        colon == std::string_view::npos ? userinfo : userinfo.substr(colon + 1);
    return credential.empty() || credential.find_first_not_of(reference) != std::string_view::npos;
}

} // namespace outbox::sink
