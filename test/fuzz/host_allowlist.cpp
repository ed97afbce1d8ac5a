// The allowlist of hosts, and private addresses.
#include "sink/config/host_allowlist.hpp"

#include "core/parse_number.hpp"
#include "private_networks.hpp"
#include "sink/format/encoding.hpp"

namespace outbox::fuzz {

// One spelling per host: the bytes of an IPv6 address behind a "[", which no name has, or the name
// in lower case.
std::string spell(std::string_view host)
{
    if (host.starts_with('[') && host.ends_with(']') && host.size() > 1)
        host = host.substr(1, host.size() - 2);
    in6_addr address;
    const std::string text(host);
    if (text.size() == std::strlen(text.c_str()) &&
        inet_pton(AF_INET6, text.c_str(), &address) == 1)
        return "[" +
               sink::percent_encode({reinterpret_cast<const char*>(&address), sizeof(address)});
    return sink::ascii_lower(host.substr(0, host.size() - (host.ends_with('.') ? 1 : 0)));
}

// The same answer for a valid list, by simpler means.
bool allows(std::string_view list, std::string_view host, int port)
{
    bool is_empty = true;
    while (!list.empty()) {
        const std::string_view item = list.substr(0, list.find_first_of(", \t\r\n"));
        list.remove_prefix(std::min(item.size() + 1, list.size()));
        if (item.empty())
            continue;
        is_empty = false;
        const auto colon = item.find(':', item.starts_with('[') ? item.find(']') : 0);
        const std::string_view allowed = item.substr(0, colon);
        if (colon != std::string_view::npos &&
            parse_bigint(item.substr(colon + 1)).value_or(0) != port)
            continue;
        const std::string name = spell(host);
        const bool is_address = host.find(':') != std::string_view::npos; // no name has a colon
        const std::string domain = allowed.starts_with("*.") ? "." + spell(allowed.substr(2)) : "";
        if (allowed == "*" || name == spell(allowed) ||
            (!domain.empty() && name.ends_with(domain) && name != domain && !is_address))
            return true;
    }
    return is_empty;
}

void check_list(std::string_view list, std::string_view host, int port)
{
    std::optional<sink::HostAllowlist> allowed;
    if (const auto error = error_of([&] { allowed.emplace(list); })) {
        must(std::string_view(error->sqlstate()) == "22023", "a bad list is a bad value");
        return;
    }
    const bool is_allowed = allowed->allows(host, port);
    must(is_allowed == allows(list, host, port),
         "the list allows exactly the hosts that match its patterns");
    std::string other(host);
    for (char& c : other)
        c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    must(allowed->allows(other, port) == is_allowed, "case does not matter");
}

void check_address(const std::vector<char>& given)
{
    const auto* address = reinterpret_cast<const sockaddr*>(given.data());
    const auto size = static_cast<socklen_t>(given.size());
    const std::string bytes = bytes_of(address, size);
    must(sink::is_private_address(address, size) == (bytes.empty() || is_private(bytes)),
         "an address is private if its network is private or unassigned");
}

template <typename Address>
std::vector<char> bytes_of(const Address& address)
{
    const auto* bytes = reinterpret_cast<const char*>(&address);
    return {bytes, bytes + sizeof(address)};
}

// The input as an address, or as raw bytes in place of one; and every address that differs in one
// bit, because such pairs lie on both sides of every network border.
void check_addresses(const std::string& text)
{
    sockaddr_in in4 = {AF_INET, 0, {}, {}};
    sockaddr_in6 in6 = {AF_INET6, 0, 0, {}, 0};
    std::vector<char> given(text.begin(), text.end());
    if (inet_pton(AF_INET, text.c_str(), &in4.sin_addr) == 1)
        given = bytes_of(in4);
    else if (inet_pton(AF_INET6, text.c_str(), &in6.sin6_addr) == 1)
        given = bytes_of(in6);
    check_address(given);
    for (std::size_t bit = 0; bit < std::min(given.size(), sizeof(in6)) * 8; ++bit) {
        std::vector<char> other = given;
        other[bit / 8] = static_cast<char>(other[bit / 8] ^ 1 << bit % 8);
        check_address(other);
    }
}

void try_one(std::string_view input)
{
    const auto [list, host, port, address] = split<4>(input, '|');
    check_list(list, host, static_cast<int>(parse_bigint(port).value_or(443) & 0xFFFF));
    check_addresses(std::string(address));
}

} // namespace outbox::fuzz
