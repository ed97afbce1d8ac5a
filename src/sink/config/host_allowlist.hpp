#pragma once

#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

namespace outbox::sink {

// The hosts that sinks may talk to. An empty list allows all.
class HostAllowlist {
public:
    // Separated by commas or blanks: `example.org`, `*.example.org` (subdomains of any depth, not
    // example.org itself), `*`, `192.0.2.1`, `[2001:db8::1]`, each with or without `:port`.
    // Throws 22023 for anything else.
    explicit HostAllowlist(std::string_view list);

    // An IPv6 address may come with or without brackets.
    bool allows(std::string_view host, int port) const;

private:
    struct Pattern {
        std::string host; // `.example.org` for subdomains, empty for any
        bool subdomains = false;
        int port = 0; // 0 is any
    };

    static Pattern parse_pattern(std::string_view text);

    std::vector<Pattern> patterns_;
};

// Is this an address that the world outside cannot reach: this machine, its networks, multicast, or
// an IPv6 form of such an IPv4 address? To be asked of the address that is connected to, after all
// names are resolved. What it does not know is private.
bool is_private_address(const sockaddr* address, socklen_t size);

} // namespace outbox::sink
