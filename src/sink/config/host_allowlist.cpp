#include "sink/config/host_allowlist.hpp"

#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "sink/format/encoding.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <netinet/in.h>

namespace outbox::sink {

namespace {

constexpr std::string_view separators = ", \t\r\n";

// Returns the canonical spelling of an IPv6 address; empty if the text is not one.
std::string canonical_ipv6(std::string_view text)
{
    in6_addr address;
    char buffer[INET6_ADDRSTRLEN];
    // inet_pton() reads up to a NUL and would check a shorter text than the caller has.
    if (text.find('\0') != std::string_view::npos ||
        inet_pton(AF_INET6, std::string(text).c_str(), &address) != 1 ||
        !inet_ntop(AF_INET6, &address, buffer, sizeof(buffer)))
        return {};
    return buffer;
}

// Returns true for a lower-case DNS label. Underscores are allowed: some names have them.
bool is_label(std::string_view label)
{
    const auto fits = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    };
    return !label.empty() && label.size() <= 63 && std::all_of(label.begin(), label.end(), fits);
}

// Returns true for a lower-case host name without trailing dot, or an IPv4 address.
bool is_host_name(std::string_view name)
{
    if (name.size() > 253)
        return false;
    for (;;) {
        const auto dot = name.find('.');
        if (!is_label(name.substr(0, dot)))
            return false;
        if (dot == std::string_view::npos)
            return true;
        name.remove_prefix(dot + 1);
    }
}

// Returns the canonical spelling of a host: lower case, no brackets, no trailing dot, and IPv6 as
// inet_ntop() writes it. Does not check the name.
std::string canonical(std::string_view host)
{
    if (host.starts_with('[') && host.ends_with(']'))
        host = host.substr(1, host.size() - 2);
    if (const std::string address = canonical_ipv6(host); !address.empty())
        return address;
    if (host.ends_with('.'))
        host.remove_suffix(1);
    return ascii_lower(host);
}

// Raises 22023 with the pattern.
[[noreturn]] void refuse(std::string_view pattern)
{
    throw Error("22023", "invalid host pattern: \"" + std::string(pattern) + "\"", {},
                "Use a host, *.domain, * or an IPv6 address in brackets, optionally with :port. "
                "Write names with non-ASCII letters in punycode.");
}

} // namespace

HostAllowlist::HostAllowlist(std::string_view list)
{
    while (true) {
        const auto begin = list.find_first_not_of(separators);
        if (begin == std::string_view::npos)
            return;
        list.remove_prefix(begin);
        const std::string_view text = list.substr(0, list.find_first_of(separators));
        patterns_.push_back(parse_pattern(text));
        list.remove_prefix(text.size());
    }
}

HostAllowlist::Pattern HostAllowlist::parse_pattern(std::string_view text)
{
    Pattern pattern;
    const bool bracketed = text.starts_with('[');
    const auto host_end = bracketed ? text.find(']') + 1 : std::min(text.find(':'), text.size());
    if (bracketed && host_end == 0)
        refuse(text);
    const std::string_view host = text.substr(0, host_end);
    if (const std::string_view port = text.substr(host_end); !port.empty()) {
        const auto number = parse_bigint(port.substr(1));
        if (port[0] != ':' || !number || *number < 1 || *number > 65535)
            refuse(text);
        pattern.port = static_cast<int>(*number);
    }

    if (host == "*")
        return pattern;
    if (bracketed) {
        pattern.host = canonical_ipv6(host.substr(1, host.size() - 2));
        if (pattern.host.empty())
            refuse(text);
        return pattern;
    }
    pattern.subdomains = host.starts_with("*.");
    const std::string_view domain = pattern.subdomains ? host.substr(2) : host;
    const std::string name = canonical(domain);
    if (domain.starts_with('[') || !is_host_name(name))
        refuse(text);
    pattern.host = pattern.subdomains ? '.' + name : name;
    return pattern;
}

bool HostAllowlist::allows(std::string_view host, int port) const
{
    if (patterns_.empty())
        return true;
    const std::string name = canonical(host);
    return std::any_of(patterns_.begin(), patterns_.end(), [&](const Pattern& pattern) {
        if (pattern.port != 0 && pattern.port != port)
            return false;
        if (pattern.host.empty())
            return true;
        // An IPv6 address is in no domain, although it can end like one: ::1.2.3.4.
        if (pattern.subdomains)
            return name.size() > pattern.host.size() && name.ends_with(pattern.host) &&
                   name.find(':') == std::string::npos;
        return name == pattern.host;
    });
}

namespace {

// An IPv4 network: address in host byte order and prefix length.
struct Network4 {
    std::uint32_t address;
    int bits;
};

// IPv4 networks of the IANA special-purpose registry, multicast and reserved addresses.
constexpr Network4 private_networks4[] = {
    {0x00000000, 8},  // 0.0.0.0/8, this host
    {0x0A000000, 8},  // 10.0.0.0/8
    {0x64400000, 10}, // 100.64.0.0/10, carrier-grade NAT
    {0x7F000000, 8},  // 127.0.0.0/8
    {0xA9FE0000, 16}, // 169.254.0.0/16, link-local, with the metadata services of clouds
    {0xAC100000, 12}, // 172.16.0.0/12
    {0xC0000000, 24}, // 192.0.0.0/24, protocol assignments
    {0xC0000200, 24}, // 192.0.2.0/24, documentation
    {0xC0586300, 24}, // 192.88.99.0/24, relays of 6to4
    {0xC0A80000, 16}, // 192.168.0.0/16
    {0xC6120000, 15}, // 198.18.0.0/15, benchmarks
    {0xC6336400, 24}, // 198.51.100.0/24, documentation
    {0xCB007100, 24}, // 203.0.113.0/24, documentation
    {0xE0000000, 4},  // 224.0.0.0/4, multicast
    {0xF0000000, 4},  // 240.0.0.0/4, reserved, and broadcast
};

// Returns true if the address, in host byte order, is in private_networks4.
bool is_private4(std::uint32_t address)
{
    return std::any_of(std::begin(private_networks4), std::end(private_networks4),
                       [&](const Network4& network) {
                           return ((address ^ network.address) >> (32 - network.bits)) == 0;
                       });
}

using Address6 = std::array<std::uint8_t, 16>;

bool starts_with(const Address6& address, std::initializer_list<std::uint8_t> prefix)
{
    return std::equal(prefix.begin(), prefix.end(), address.begin());
}

// Returns the IPv4 address, in host byte order, in the four bytes from index `at` on.
std::uint32_t embedded4(const Address6& address, std::size_t at)
{
    return static_cast<std::uint32_t>(address[at]) << 24 |
           static_cast<std::uint32_t>(address[at + 1]) << 16 |
           static_cast<std::uint32_t>(address[at + 2]) << 8 | address[at + 3];
}

// Returns true unless the address is public unicast. If it embeds an IPv4 address, that one
// decides.
bool is_private6(const Address6& address)
{
    // IPv4-compatible (which includes :: and ::1), IPv4-mapped, IPv4-translated and NAT64 addresses
    if (starts_with(address, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) ||
        starts_with(address, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF}) ||
        starts_with(address, {0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0}) ||
        starts_with(address, {0, 0x64, 0xFF, 0x9B, 0, 0, 0, 0, 0, 0, 0, 0}))
        return is_private4(embedded4(address, 12));
    if (starts_with(address, {0x20, 0x02})) // 6to4
        return is_private4(embedded4(address, 2));
    // Only 2000::/3 is public, without 2001::/23 (protocol assignments, among them Teredo, which
    // embeds IPv4 addresses) and the documentation networks 2001:db8::/32 and 3fff::/20.
    return (address[0] & 0xE0) != 0x20 ||
           (starts_with(address, {0x20, 0x01}) && (address[2] & 0xFE) == 0) ||
           starts_with(address, {0x20, 0x01, 0x0D, 0xB8}) ||
           (starts_with(address, {0x3F, 0xFF}) && (address[2] & 0xF0) == 0);
}

} // namespace

bool is_private_address(const sockaddr* address, socklen_t size)
{
    if (address == nullptr || size < sizeof(sa_family_t))
        return true;
    // Copies with memcpy(), because the caller's buffer need not be aligned for sockaddr_in6.
    sa_family_t family;
    std::memcpy(&family, reinterpret_cast<const char*>(address) + offsetof(sockaddr, sa_family),
                sizeof(family));
    if (family == AF_INET && size >= sizeof(sockaddr_in)) {
        sockaddr_in in4;
        std::memcpy(&in4, address, sizeof(in4));
        return is_private4(ntohl(in4.sin_addr.s_addr));
    }
    if (family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
        sockaddr_in6 in6;
        std::memcpy(&in6, address, sizeof(in6));
        Address6 bytes;
        std::memcpy(bytes.data(), &in6.sin6_addr, bytes.size());
        return is_private6(bytes);
    }
    return true;
}

} // namespace outbox::sink
