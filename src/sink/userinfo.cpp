#include "sink/userinfo.hpp"

#include "sink/secrets.hpp"

#include <algorithm>

namespace outbox::sink {

namespace {

constexpr std::string_view scheme_characters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.";

// The password of a userinfo, or all of it if it has none. A reference has a colon too.
std::string_view credential_in(std::string_view userinfo)
{
    constexpr std::string_view opening = "${secret:";
    for (std::size_t i = 0; i < userinfo.size(); ++i) {
        if (userinfo.substr(i).starts_with(opening))
            i += opening.size();
        else if (userinfo[i] == ':')
            return userinfo.substr(i + 1);
    }
    return userinfo;
}

} // namespace

// libcurl takes text for a scheme if a colon and a slash come behind it, and does without a slash
// or with one more than there should be.
std::string_view authority_of(std::string_view url)
{
    const auto scheme = std::min(url.find_first_not_of(scheme_characters), url.size());
    if (url.substr(scheme).starts_with(":/"))
        url.remove_prefix(std::min(url.find_first_not_of('/', scheme + 1), url.size()));
    return url.substr(0, url.find_first_of("/?#"));
}

bool has_literal_password(std::string_view url)
{
    const std::string_view authority = authority_of(url);
    const auto at = authority.rfind('@');
    return at != std::string_view::npos &&
           !has_secret_reference(credential_in(authority.substr(0, at)));
}

} // namespace outbox::sink
