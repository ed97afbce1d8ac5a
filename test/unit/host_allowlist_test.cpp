#include "sink/config/host_allowlist.hpp"

#include "core/error.hpp"

#include <arpa/inet.h>
#include <cstring>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/un.h>

namespace {

using outbox::sink::HostAllowlist;
using outbox::sink::is_private_address;

TEST(HostAllowlist, AnEmptyListAllowsAll)
{
    for (const char* list : {"", " ", " ,\t\n, "})
        EXPECT_TRUE(HostAllowlist(list).allows("anything.example", 443)) << '"' << list << '"';
}

TEST(HostAllowlist, AStarAllowsAll)
{
    EXPECT_TRUE(HostAllowlist("*").allows("example.org", 1));
    EXPECT_TRUE(HostAllowlist("a.example *").allows("[::1]", 1));
    EXPECT_TRUE(HostAllowlist("*:443").allows("example.org", 443));
    EXPECT_FALSE(HostAllowlist("*:443").allows("example.org", 80));
}

TEST(HostAllowlist, ANameAllowsThatHostAlone)
{
    const HostAllowlist hosts("Example.org, b.example\tc.example");
    EXPECT_TRUE(hosts.allows("example.org", 443));
    EXPECT_TRUE(hosts.allows("EXAMPLE.ORG", 80));
    EXPECT_TRUE(hosts.allows("example.org.", 80));
    EXPECT_TRUE(hosts.allows("b.example", 80));
    EXPECT_TRUE(hosts.allows("c.example", 80));
    for (const std::string_view host :
         {"", "www.example.org", "example.org.evil", "notexample.org", "example.or", "example.orgx",
          "example.org..", ".example.org", "example.org@evil"})
        EXPECT_FALSE(hosts.allows(host, 443)) << host;
    EXPECT_FALSE(hosts.allows(std::string_view("example.org\0.evil", 17), 443));
    EXPECT_FALSE(hosts.allows(std::string_view("example.org\0", 12), 443));
}

TEST(HostAllowlist, AStarBeforeADomainAllowsEverySubdomain)
{
    const HostAllowlist hosts("*.example.org");
    EXPECT_TRUE(hosts.allows("a.example.org", 443));
    EXPECT_TRUE(hosts.allows("a.b.C.Example.Org", 443));
    EXPECT_TRUE(hosts.allows("a.example.org.", 443));
    EXPECT_FALSE(hosts.allows("example.org", 443));
    EXPECT_FALSE(hosts.allows(".example.org", 443));
    EXPECT_FALSE(hosts.allows("aexample.org", 443));
    EXPECT_FALSE(hosts.allows("a.example.org.evil", 443));
}

TEST(HostAllowlist, AnIpv6AddressMatchesNoDomainPattern)
{
    const HostAllowlist hosts("*.0.12");
    EXPECT_FALSE(hosts.allows("::7f:c", 443)); // the same address in dotted form: ::0.127.0.12
    EXPECT_FALSE(hosts.allows("[::ffff:10.0.0.12]", 443));
    EXPECT_TRUE(hosts.allows("host.0.12", 443));
}

TEST(HostAllowlist, APortInAPatternAllowsThatPortAlone)
{
    const HostAllowlist hosts("example.org:8443 *.example.net:80,[::1]:9");
    EXPECT_TRUE(hosts.allows("example.org", 8443));
    EXPECT_FALSE(hosts.allows("example.org", 443));
    EXPECT_TRUE(hosts.allows("a.example.net", 80));
    EXPECT_FALSE(hosts.allows("a.example.net", 8080));
    EXPECT_TRUE(hosts.allows("::1", 9));
    EXPECT_FALSE(hosts.allows("::1", 10));
}

TEST(HostAllowlist, AddressesMatchInAnySpelling)
{
    const HostAllowlist hosts("192.0.2.1 [2001:DB8:0:0::1]");
    EXPECT_TRUE(hosts.allows("192.0.2.1", 443));
    EXPECT_TRUE(hosts.allows("[2001:db8::1]", 443));
    EXPECT_TRUE(hosts.allows("2001:db8:0::0:1", 443));
    EXPECT_FALSE(hosts.allows("[2001:db8::2]", 443));
    EXPECT_FALSE(hosts.allows("[fe80::1%eth0]", 443));
    EXPECT_FALSE(hosts.allows(std::string_view("2001:db8::1\0.evil", 17), 443));
    EXPECT_FALSE(hosts.allows("[", 443));
    EXPECT_FALSE(hosts.allows("[]", 443));
}

TEST(HostAllowlist, InvalidPatternsAreRefused)
{
    const std::string long_label(64, 'a');
    std::string long_name = "a";
    while (long_name.size() < 254)
        long_name += ".a";
    for (const std::string& pattern : {std::string("https://example.org"),
                                       std::string("example.org/"),
                                       std::string("user@host"),
                                       std::string("*example.org"),
                                       std::string("a.*.org"),
                                       std::string("**"),
                                       std::string("*."),
                                       std::string("*.*"),
                                       std::string("."),
                                       std::string(".example.org"),
                                       std::string("a..b"),
                                       std::string("example.org:"),
                                       std::string("example.org:0"),
                                       std::string("example.org:65536"),
                                       std::string("example.org:http"),
                                       std::string("example.org:-1"),
                                       std::string("example.org:80:80"),
                                       std::string(":80"),
                                       std::string("::1"),
                                       std::string("[::1"),
                                       std::string("[]"),
                                       std::string("[::g]"),
                                       std::string("[::1]x"),
                                       std::string("[::1]80"),
                                       std::string("[fe80::1%eth0]"),
                                       std::string("[127.0.0.1]"),
                                       std::string("*.[::1]"),
                                       std::string("münchen.example"),
                                       std::string("a\0b", 3),
                                       long_label,
                                       long_name}) {
        try {
            HostAllowlist hosts("good.example " + pattern);
            ADD_FAILURE() << pattern;
        } catch (const outbox::Error& error) {
            EXPECT_STREQ(error.sqlstate(), "22023");
            EXPECT_NE(std::string(error.what()).find(pattern.c_str()), std::string::npos);
            EXPECT_FALSE(error.hint().empty());
        }
    }
}

bool is_private(const char* text)
{
    sockaddr_in in4{};
    if (inet_pton(AF_INET, text, &in4.sin_addr) == 1) {
        in4.sin_family = AF_INET;
        return is_private_address(reinterpret_cast<const sockaddr*>(&in4), sizeof(in4));
    }
    sockaddr_in6 in6{};
    in6.sin6_family = AF_INET6;
    EXPECT_EQ(inet_pton(AF_INET6, text, &in6.sin6_addr), 1) << text;
    return is_private_address(reinterpret_cast<const sockaddr*>(&in6), sizeof(in6));
}

TEST(PrivateAddress, KnowsIpv4)
{
    for (const char* address : {"0.0.0.0",     "0.255.255.255",   "10.0.0.0",    "10.255.255.255",
                                "100.64.0.0",  "100.127.255.255", "127.0.0.1",   "127.255.255.255",
                                "169.254.0.0", "169.254.169.254", "172.16.0.0",  "172.31.255.255",
                                "192.0.0.0",   "192.0.0.255",     "192.168.0.0", "192.168.255.255",
                                "198.18.0.0",  "198.19.255.255",  "224.0.0.1",   "239.255.255.255",
                                "240.0.0.1",   "255.255.255.255", "192.0.2.0",   "192.0.2.255",
                                "192.88.99.1", "198.51.100.7",    "203.0.113.0", "203.0.113.255"})
        EXPECT_TRUE(is_private(address)) << address;
    for (const char* address :
         {"1.0.0.0",      "9.255.255.255",   "11.0.0.0",     "100.63.255.255",
          "100.128.0.0",  "126.255.255.255", "128.0.0.0",    "169.253.255.255",
          "169.255.0.0",  "172.15.255.255",  "172.32.0.0",   "192.0.1.0",
          "192.0.3.0",    "192.88.98.255",   "192.88.100.0", "192.167.255.255",
          "192.169.0.0",  "198.17.255.255",  "198.20.0.0",   "198.51.99.255",
          "198.51.101.0", "203.0.112.255",   "203.0.114.0",  "223.255.255.255",
          "8.8.8.8",      "93.184.216.34"})
        EXPECT_FALSE(is_private(address)) << address;
}

TEST(PrivateAddress, KnowsIpv6)
{
    for (const char* address : {"::", "::1", "fe80::1", "febf:ffff::1", "fec0::1", "fc00::1",
                                "fdff:ffff::1", "ff00::", "ff02::1", "64:ff9b:1::808:808"})
        EXPECT_TRUE(is_private(address)) << address;
    for (const char* address : {"2606:4700:4700::1111", "2001:4860:4860::8888", "2001:200::1",
                                "2003::1", "2000::1", "3ffe::1", "3fff:1000::1", "2001:db9::1"})
        EXPECT_FALSE(is_private(address)) << address;
}

TEST(PrivateAddress, ChecksIpv4AddressesInIpv6)
{
    for (const char* address :
         {"::ffff:127.0.0.1", "::ffff:10.1.2.3", "::ffff:169.254.169.254", "::127.0.0.1",
          "::192.168.1.1", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1",
          "2002:7f00:1::", "2002:a00:1::1", "2002:c0a8:101:1::1", "2002:a9fe:a9fe::"})
        EXPECT_TRUE(is_private(address)) << address;
    for (const char* address : {"::ffff:8.8.8.8", "::8.8.8.8", "::ffff:0:8.8.8.8",
                                "64:ff9b::8.8.8.8", "2002:808:808::1", "2002:808:808::127.0.0.1"})
        EXPECT_FALSE(is_private(address)) << address;
}

TEST(PrivateAddress, UnassignedNetworksArePrivate)
{
    for (const char* address :
         {"2001::7f00:1", "2001:0:808:808::1", "2001:1ff::1", "2001:db8::1", "2001:db8:ffff::1",
          "3fff::1", "3fff:fff::1", "100::1", "1fff::1", "4000::1", "5f00::1", "fbff::1", "fe00::1",
          "64:ff9b:2::a00:1", "0:0:0:1::1"})
        EXPECT_TRUE(is_private(address)) << address;
}

TEST(PrivateAddress, UnknownFamiliesAndTruncatedAddressesArePrivate)
{
    sockaddr_un local{};
    local.sun_family = AF_UNIX;
    EXPECT_TRUE(is_private_address(reinterpret_cast<sockaddr*>(&local), sizeof(local)));
    EXPECT_TRUE(is_private_address(nullptr, 0));
    sockaddr_in in4{};
    in4.sin_family = AF_INET;
    inet_pton(AF_INET, "8.8.8.8", &in4.sin_addr);
    EXPECT_TRUE(is_private_address(reinterpret_cast<sockaddr*>(&in4), 4));
    EXPECT_TRUE(is_private_address(reinterpret_cast<sockaddr*>(&in4), 1));
}

TEST(PrivateAddress, ReadsUnalignedAddresses)
{
    sockaddr_in in4{};
    in4.sin_family = AF_INET;
    inet_pton(AF_INET, "8.8.8.8", &in4.sin_addr);
    char buffer[sizeof(in4) + 1];
    std::memcpy(buffer + 1, &in4, sizeof(in4));
    EXPECT_FALSE(is_private_address(reinterpret_cast<sockaddr*>(buffer + 1), sizeof(in4)));
}

} // namespace
