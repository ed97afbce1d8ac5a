#pragma once

#include <string_view>

namespace outbox::sink {

// What stands between the scheme and the path of a URL: userinfo, host and port.
std::string_view authority_of(std::string_view url);

// Has a URL, in which there may be references to secrets, a password that is not one of those, or a
// user without a password?
bool has_literal_password(std::string_view url);

} // namespace outbox::sink
