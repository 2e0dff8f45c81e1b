// Addresses as text, as the UDP driver has them, and of groups.
#include <doctest/doctest.h>

#include <sys/socket.h>

#include <cstring>

#include "io/udp_address.hpp"
#include "ipstack/address.hpp"
#include "ipstack/address_map.hpp"
#include "support/native/dice.hpp"

namespace dlcp::ipstack {

TEST_CASE("ipstack address: text") {
    for (const char* text :
         {"10.0.0.1", "255.255.255.255", "0.0.0.0", "fd00::1", "::", "fe80::1:2:3:4", "ff02::1"}) {
        CAPTURE(text);
        const auto ip = parse_ip(text);
        REQUIRE(ip);
        CHECK(ip->is_v6() == (std::strchr(text, ':') != nullptr));
        CHECK(to_text(*ip) == text);
    }
    for (const char* text :
         {"", "10.0.0", "10.0.0.256", "10.0.0.1 ", " 10.0.0.1", "010.0.0.1.2", "fe80::1%eth0", "::g", "host",
          "10.0.0.1/24", "1:2:3:4:5:6:7:8:9", "0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000"}) {
        CAPTURE(text);
        CHECK_FALSE(parse_ip(text));
    }
    CHECK_FALSE(parse_ip(std::string_view("10.0.0.1\0", 9)));
    CHECK(parse_ip(std::string_view("10.0.0.12", 8)) == parse_ip("10.0.0.1"));
    CHECK(to_text(UdpAddress{*parse_ip("10.0.0.1"), 7000}) == "10.0.0.1:7000");
    CHECK(to_text(UdpAddress{*parse_ip("fd00::1"), 7000}) == "[fd00::1]:7000");
    CHECK(to_text(IpAddress{}) == "(no address)");

    CHECK(to_text(*parse_mac("aA:bb:0c:00:ff:01")) == "aa:bb:0c:00:ff:01");
    for (const char* text : {"", "aa:bb:cc:dd:ee", "aa:bb:cc:dd:ee:f", "aa:bb:cc:dd:ee:fg", "aa-bb-cc-dd-ee-ff",
                             "aa:bb:cc:dd:ee:ff:", "aabb:cc:dd:ee:ff0"}) {
        CAPTURE(text);
        CHECK_FALSE(parse_mac(text));
    }
}

TEST_CASE("ipstack address: as the UDP driver writes it") {
    for (const char* text : {"10.0.0.1:7000", "[fd00::1]:65535", "192.168.255.254:1"}) {
        CAPTURE(text);
        dlcp_address theirs;
        REQUIRE(udp::resolve_endpoint(text, AF_UNSPEC, theirs, {nullptr, 0}) == 0);
        const UdpAddress address = from_dlcp(theirs);
        CHECK(to_text(address) == text);
        const dlcp_address ours = to_dlcp(address);
        CHECK(ours.length == theirs.length);
        CHECK(ours.flags == 0);
        CHECK(std::memcmp(ours.bytes, theirs.bytes, sizeof ours.bytes) == 0);
    }
    CHECK(from_dlcp({}) == UdpAddress{});
    CHECK(to_dlcp({}).length == 0);
    dlcp_address foreign{.bytes = {77}, .length = 8};
    CHECK_FALSE(from_dlcp(foreign).ip.present());
}

TEST_CASE("ipstack address: prefixes and groups") {
    const IpAddress host = *parse_ip("10.1.2.3");
    CHECK(in_prefix(host, *parse_ip("10.1.2.255"), 24));
    CHECK_FALSE(in_prefix(host, *parse_ip("10.1.3.3"), 24));
    CHECK(in_prefix(host, *parse_ip("10.1.3.3"), 23));
    CHECK_FALSE(in_prefix(host, *parse_ip("10.1.2.2"), 32));
    CHECK(in_prefix(host, host, 32));
    CHECK(in_prefix(host, host, 99));
    CHECK(in_prefix(host, *parse_ip("192.0.2.1"), 0));
    CHECK_FALSE(in_prefix(host, *parse_ip("fd00::1"), 0));
    CHECK_FALSE(in_prefix({}, {}, 0));
    CHECK(in_prefix(*parse_ip("fd00::8000:1"), *parse_ip("fd00::ffff:2"), 97));
    CHECK_FALSE(in_prefix(*parse_ip("fd00::8000:1"), *parse_ip("fd00::7fff:2"), 97));

    CHECK(is_multicast(*parse_ip("224.0.0.1")));
    CHECK(is_multicast(*parse_ip("239.255.255.255")));
    CHECK_FALSE(is_multicast(*parse_ip("240.0.0.1")));
    CHECK(is_multicast(*parse_ip("ff02::1")));
    CHECK_FALSE(is_multicast(IpAddress{}));
    CHECK(is_unspecified(*parse_ip("::")));
    CHECK(is_unspecified(*parse_ip("0.0.0.0")));
    // The example of RFC 4291, 2.7.1.
    CHECK(solicited_node(*parse_ip("4037::1:800:200e:8c6c")) == *parse_ip("ff02::1:ff0e:8c6c"));
    CHECK(to_text(multicast_mac(*parse_ip("ff02::1:ff0e:8c6c"))) == "33:33:ff:0e:8c:6c");
    CHECK(to_text(multicast_mac(*parse_ip("224.129.2.3"))) == "01:00:5e:01:02:03");
}

TEST_CASE("ipstack address map: finds what was put in and not erased") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        test::Dice dice(seed);
        // Few addresses, so that runs of the table are long and holes are in their middle.
        AddressMap<IpAddress> map;
        std::vector<std::uint32_t> expected(300, AddressMap<IpAddress>::absent);
        const auto address = [](std::size_t i) {
            return IpAddress{.bytes = {10, 0, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)},
                             .bits = 32};
        };
        for (int turn = 0; turn < 5000; ++turn) {
            const std::size_t i = dice.below(expected.size());
            if (expected[i] == AddressMap<IpAddress>::absent && dice.chance(0.6)) {
                expected[i] = static_cast<std::uint32_t>(turn);
                map.insert(address(i), expected[i]);
            } else {
                expected[i] = AddressMap<IpAddress>::absent;
                map.erase(address(i));
            }
            const std::size_t j = dice.below(expected.size());
            REQUIRE(map.find(address(j)) == expected[j]);
        }
        for (std::size_t i = 0; i < expected.size(); ++i) REQUIRE(map.find(address(i)) == expected[i]);
    }
}

}  // namespace dlcp::ipstack
