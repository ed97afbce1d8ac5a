#pragma once

#include <string_view>

namespace outbox::sink {

// Returns the authority of a URL (userinfo, host and port) as libcurl finds it, also without a
// scheme. The result points into `url`.
std::string_view authority_of(std::string_view url);

// Returns true if the userinfo of a URL has a password other than ${secret:name}, an empty
// password, or a literal user name without a password, which may be a token.
bool has_literal_password(std::string_view url);

} // namespace outbox::sink
