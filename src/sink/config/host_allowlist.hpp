#pragma once

#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

namespace outbox::sink {

// Parsed outbox.http_allowed_hosts: the hosts that HTTP sinks may connect to. An empty list allows
// all hosts.
class HostAllowlist {
public:
    // Parses patterns separated by commas or blanks: `example.org`, `*.example.org` (subdomains of
    // any depth, not example.org itself), `*`, `192.0.2.1`, `[2001:db8::1]`, each with or without
    // `:port`. Raises 22023 for anything else.
    explicit HostAllowlist(std::string_view list);

    // Returns true if a pattern matches or the list is empty. An IPv6 address may have brackets or
    // not; case and a trailing dot do not matter.
    bool allows(std::string_view host, int port) const;

private:
    struct Pattern {
        std::string host; // canonical; `.example.org` for subdomains, empty: any host
        bool subdomains = false;
        int port = 0; // 0: any port
    };

    // Parses one pattern of the list. Raises 22023 if it is invalid.
    static Pattern parse_pattern(std::string_view text);

    std::vector<Pattern> patterns_;
};

// Returns true unless the address is a public unicast address: true for loopback, private and
// link-local networks, multicast, IPv6 forms of such IPv4 addresses, and unknown address families.
// Call with the address of connect(), after name resolution, so that no name can evade the check.
bool is_private_address(const sockaddr* address, socklen_t size);

} // namespace outbox::sink
