// Addresses that are not reachable from the public internet, by lists of networks.
#pragma once

#include "fuzz.hpp"

#include <arpa/inet.h>
#include <cstring>
#include <netinet/in.h>

namespace outbox::fuzz {

// True if the address, of 4 or 16 bytes, is in the network, written as address/bits.
inline bool is_in(std::string_view address, const char* network)
{
    const auto [text, bits] = split<2>(network, '/');
    char bytes[16];
    const int family = address.size() == 4 ? AF_INET : AF_INET6;
    if (inet_pton(family, std::string(text).c_str(), bytes) != 1)
        return false; // the other address family
    for (int i = 0; i < std::stoi(std::string(bits)); ++i)
        if (((address[static_cast<std::size_t>(i / 8)] ^ bytes[i / 8]) >> (7 - i % 8) & 1) != 0)
            return false;
    return true;
}

inline bool is_private(std::string_view address)
{
    constexpr const char* networks[] = {
        "0.0.0.0/8",     "10.0.0.0/8",      "100.64.0.0/10",  "127.0.0.0/8",    "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24",    "192.0.2.0/24",   "192.88.99.0/24", "192.168.0.0/16",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",    "2001::/23",
        "2001:db8::/32", "3fff::/20",
    };
    // IPv6 networks that embed an IPv4 address, and the offset of that address.
    constexpr std::pair<const char*, std::size_t> wrappings[] = {
        {"::/96", 12},        {"::ffff:0:0/96", 12}, {"::ffff:0:0:0/96", 12},
        {"64:ff9b::/96", 12}, {"2002::/16", 2},
    };
    const auto contains = [&](const char* network) { return is_in(address, network); };
    for (const auto& [network, at] : wrappings)
        if (contains(network))
            return is_private(address.substr(at, 4));
    const bool is_assigned = address.size() == 4 || contains("2000::/3");
    return !is_assigned || std::ranges::any_of(networks, contains);
}

// The bytes of an address; empty if it has another family or is truncated.
inline std::string bytes_of(const sockaddr* address, socklen_t size)
{
    const auto* bytes = reinterpret_cast<const char*>(address);
    sa_family_t family = AF_UNSPEC;
    if (size >= sizeof(family))
        std::memcpy(&family, bytes, sizeof(family));
    if (family == AF_INET && size >= sizeof(sockaddr_in))
        return {bytes + offsetof(sockaddr_in, sin_addr), 4};
    if (family == AF_INET6 && size >= sizeof(sockaddr_in6))
        return {bytes + offsetof(sockaddr_in6, sin6_addr), 16};
    return {};
}

} // namespace outbox::fuzz
