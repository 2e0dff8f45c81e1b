// Settings of an interface as text; what each driver makes of them is in tests/native/io/dpdk/test_options.cpp and xdp/test_driver.cpp.
#include <doctest/doctest.h>

#include <array>

#include "ipstack/interface_options.hpp"

namespace dlcp::ipstack {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("interface options: blanks of all kinds part them") {
    std::string_view rest = " \tqueues=2\n  vlan=5 ";
    CHECK(next_option(rest) == "queues=2");
    CHECK(next_option(rest) == "vlan=5");
    CHECK(next_option(rest).empty());
    CHECK(next_option(rest).empty());
}

TEST_CASE("interface options: a name and its value, and of an unknown name the nearest") {
    using namespace std::string_view_literals;
    constexpr std::array known{"queues"sv, "vlan"sv, "mtu"sv};
    Option option;
    CHECK(parse_option("vlan=5", "dpdk", known, option) == "");
    CHECK(option.name == "vlan");
    CHECK(option.value == "5");
    CHECK(parse_option("vlna=5", "dpdk", known, option) ==
          "'vlna' is not an option of dpdk; did you mean 'vlan='? There are queues, vlan and mtu");
    for (const char* text : {"vlan", "vlan="})
        CHECK(contains(parse_option(text, "dpdk", known, option), "needs a value: vlan=…"));
}

TEST_CASE("interface options: numbers are whole and within bounds") {
    for (const char* text : {"", "-1", "+1", "1x", " 1", "0x1", "101", "4294967297"}) {
        CAPTURE(text);
        CHECK_FALSE(parse_number(text, 100));
    }
    CHECK(parse_number("100", 100) == 100);
    CHECK(parse_number("0", 0) == 0);
}

TEST_CASE("interface options: a host is neither a group nor nobody nor loopback") {
    for (const char* text : {"0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "255.255.255.255", "::", "::1",
                             "ff02::1", "", "[]", "[10.0.0.1", "host", "fe80::1%eth0"}) {
        CAPTURE(text);
        CHECK_FALSE(parse_host(text));
    }
    for (const char* text : {"10.0.0.1", "fd00::1", "[fd00::1]", "fe80::1"}) CHECK(parse_host(text));
}

TEST_CASE("interface options: a gateway is a neighbour") {
    const IpAddress own = *parse_ip("10.0.0.1"), own6 = *parse_ip("fd00::1");
    CHECK(check_gateway(*parse_ip("10.0.0.254"), own, 24) == "");
    CHECK(check_gateway(*parse_ip("fe80::1"), own6, 64) == "");
    CHECK(contains(check_gateway(own, own, 24), "own address"));
    CHECK(contains(check_gateway(*parse_ip("10.0.1.1"), own, 24), "not on the link"));
    CHECK(contains(check_gateway(*parse_ip("10.0.0.254"), own, 0), "/PREFIX"));
    CHECK(contains(check_gateway(*parse_ip("10.0.0.254"), own6, 64), "family"));
}

TEST_CASE("interface options: neighbours are as many as are kept, and of a family that is there") {
    std::vector<StaticNeighbour> neighbours;
    for (std::size_t i = 0; i < Interface::static_neighbours_max; ++i) {
        const std::string value =
            "10.1." + std::to_string(i / 256) + "." + std::to_string(i % 256) + "@02:00:00:00:00:02";
        REQUIRE(parse_neighbour(value, neighbours) == "");
    }
    CHECK(contains(parse_neighbour("10.2.0.1@02:00:00:00:00:02", neighbours), "more than 4096"));
    CHECK(contains(parse_neighbour("10.1.0.1@02:00:00:00:00:02", neighbours), "before"));
    CHECK(neighbours.size() == Interface::static_neighbours_max);

    const IpAddress both[] = {*parse_ip("10.0.0.1"), *parse_ip("fd00::1")};
    CHECK(check_neighbours(neighbours, both) == "");
    CHECK(contains(check_neighbours(neighbours, {both + 1, 1}), "neighbour=10.1.0.0@02:00:00:00:00:02"));
}

}  // namespace dlcp::ipstack
