// The xdp driver between two network namespaces joined by a veth: against itself and against the kernel's sockets.
#include <doctest/doctest.h>

#include <cerrno>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "xdp_cable.hpp"

using namespace dlcp;
using namespace dlcp::test;

TEST_CASE("xdp driver: runs arrive whole, with their TOS, in either mode and family") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    for (const std::string mode : {"mode=native", "mode=generic", "mode=auto zero_copy=off"}) {
        for (const bool v6 : {false, true}) {
            CAPTURE(mode);
            CAPTURE(v6);
            Cable cable;
            Station one(*xdp, cable, 0, {.host = v6 ? "fd07::11/64" : "10.7.0.11/24", .extra = mode});
            Station other(*xdp, cable, 1, {.host = v6 ? "fd07::12/64" : "10.7.0.12/24", .extra = mode});
            CHECK(one.statistics()["native_programs"] == (mode == "mode=generic" ? 0 : 1));
            CHECK(one.warnings() == "");
            exchange(one, other);
            exchange(other, one);
        }
    }
}

TEST_CASE("xdp driver: it and the kernel's sockets understand each other") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    for (const std::string extra : {"mode=native", "mode=native checksum=none", "mode=generic"}) {
        for (const bool v6 : {false, true}) {
            CAPTURE(extra);
            CAPTURE(v6);
            Cable cable;
            Station one(*xdp, cable, 0, {.host = v6 ? "fd07::11/64" : "10.7.0.11/24", .extra = extra});
            // The kernel of a veth hands a generic program its super-packets in one piece, which no chunk holds.
            const std::uint32_t flags = extra == "mode=generic" ? DLCP_IO_NO_GSO : 0;
            Station kernel(*dlcp_udp_driver(), cable, 1, {.host = v6 ? "fd07::2" : "10.7.0.2", .flags = flags});
            exchange(one, kernel);
            exchange(kernel, one);
            CHECK(one.statistics()["rx_bad_checksum_frames"] == 0);
        }
    }
}

TEST_CASE("xdp driver: every path has its source port, and is answered there") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24", .port = 7000, .paths = 4});
    Station kernel(*dlcp_udp_driver(), cable, 1, {.host = "10.7.0.2"});
    CHECK(one.text() == "10.7.0.11:7000");
    std::vector<Outgoing> packets;
    for (std::uint16_t path = 0; path < 6; ++path) packets.push_back({.head = "h", .path = path});
    one.send(kernel.address(), packets);
    std::multiset<std::string> sources;
    for (const Incoming& packet : receive(one, kernel, 6)) sources.insert(kernel.text_of(packet.source));
    CHECK(sources == std::multiset<std::string>{"10.7.0.11:7000", "10.7.0.11:7000", "10.7.0.11:7001",
                                                "10.7.0.11:7001", "10.7.0.11:7002", "10.7.0.11:7003"});
    for (const char* answered : {"10.7.0.11:7003", "10.7.0.11:7000"}) {
        kernel.send(kernel.resolve(answered), {{.head = answered}});
        const std::vector<Incoming> arrived = receive(kernel, one, 1);
        REQUIRE(arrived.size() == 1);
        CHECK(arrived[0].datagram == answered);
    }
}

TEST_CASE("xdp driver: frames are read from every queue") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable(4);
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
    // Sockets on many ports, so that the kernel's hash has them leave by several queues.
    Station kernel(*dlcp_udp_driver(), cable, 1, {.host = "10.7.0.2", .paths = 32});
    CHECK(one.statistics()["queues"] == 4);
    std::vector<Outgoing> packets;
    for (std::uint16_t path = 0; path < 32; ++path) packets.push_back({.head = pattern(100, path), .path = path});
    kernel.send(one.address(), packets);
    CHECK(receive(kernel, one, 32).size() == 32);
    CHECK(contains(Station(*xdp, cable, 1, {.host = "10.7.0.12/24", .extra = "queues=2"}).warnings(),
                   "has 4 queues"));
}

TEST_CASE("xdp driver: the kernel keeps the interface") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24", .port = 7000});
    // The same port at the kernel's own address, on the same interface.
    Station kernel_here(*dlcp_udp_driver(), cable, 0, {.host = "10.7.0.1", .port = 7000});
    Station kernel_there(*dlcp_udp_driver(), cable, 1, {.host = "10.7.0.2"});
    exchange(kernel_there, kernel_here);
    exchange(kernel_here, kernel_there);
    CHECK(one.receive().empty());
    Station v6_here(*dlcp_udp_driver(), cable, 0, {.host = "fd07::1"});
    Station v6_there(*dlcp_udp_driver(), cable, 1, {.host = "fd07::2"});
    exchange(v6_there, v6_here);
}

TEST_CASE("xdp driver: neighbours and gateways that are told need no asking") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    cable.ip(1, "link set eth0 address 02:00:00:00:00:02");
    cable.ip(1, "address add 10.8.0.1/24 dev eth0");
    Station one(*xdp, cable, 0,
                {.host = "10.7.0.11/24", .extra = "gateway=10.7.0.2 neighbour=10.7.0.2@02:00:00:00:00:02"});
    Station kernel(*dlcp_udp_driver(), cable, 1, {.host = "10.8.0.1"});
    one.send(kernel.address(), {{.head = "through the gateway"}});
    const std::vector<Incoming> arrived = receive(one, kernel, 1);
    REQUIRE(arrived.size() == 1);
    CHECK(arrived[0].datagram == "through the gateway");
    CHECK(one.statistics()["tx_address_request_frames"] == 0);
}

TEST_CASE("xdp driver: what cannot be opened says why") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    const struct {
        Setup setup;
        int result;
        const char* text;
    } refused[] = {
        {{.host = ""}, -EINVAL, "an IP address of its own"},
        {{.host = "somewhere"}, -EINVAL, "'somewhere' is not an address"},
        {{.host = "10.7.0.11/33"}, -EINVAL, "0 to 32"},
        {{.host = "10.7.0.1/24"}, -EADDRINUSE, "the kernel has 10.7.0.1 on interface eth0"},
        {{.host = "10.7.0.11", .interface = ""}, -ENODEV, "eth0 (10.7.0.1, fd07::1)"},
        {{.host = "10.7.0.11", .interface = "eth7"}, -ENODEV, "no interface 'eth7'"},
        {{.host = "10.7.0.11", .interface = "lo"}, -EINVAL, "carries no Ethernet"},
        {{.host = "10.7.0.11", .extra = "interface=eth1"}, -EDOM, "interface eth0 is named already"},
        {{.host = "10.7.0.11", .extra = "port=eth0"}, -EDOM, "'port' is not an option of xdp"},
        {{.host = "10.7.0.11", .extra = "mode=fast"}, -EDOM, "auto, native, generic"},
        {{.host = "10.7.0.11", .extra = "queues=2"}, -EDOM, "has 1"},
        {{.host = "10.7.0.11", .extra = "vlan=4095"}, -EDOM, "1 to 4094"},
        {{.host = "10.7.0.11", .extra = "gateway=10.7.0.2"}, -EDOM, "give 10.7.0.11/PREFIX"},
        {{.host = "10.7.0.11", .extra = "neighbour=10.7.0.2"}, -EDOM, "of one station"},
        {{.host = "10.7.0.11", .extra = "neighbour=fd07::2@02:00:00:00:00:02"}, -EDOM, "of its family"},
        {{.host = "10.7.0.11/24", .extra = "gateway=10.7.0.11"}, -EDOM, "own address"},
        {{.host = "10.7.0.11/24", .extra = "gateway=10.8.0.1"}, -EDOM, "not on the link of 10.7.0.11/24"},
        {{.host = "10.7.0.11", .extra = "address_probe=no"}, -EDOM, "on, off"},
        {{.host = "10.7.0.11", .extra = "zero-copy=on"}, -EDOM, "did you mean 'zero_copy='"},
        {{.host = "10.7.0.11", .extra = "mode=generic zero_copy=on"}, -EDOM, "mode=native"},
        {{.host = "10.7.0.11", .extra = "zero_copy=on"}, -EOPNOTSUPP, "zero_copy=auto"},
        {{.host = "10.7.0.11", .paths = 65}, -EINVAL, "1 to 64"},
    };
    for (const auto& [setup, result, text] : refused) {
        const OpenFailure failure = refusal(*xdp, cable, setup);
        CAPTURE(failure.text);
        CAPTURE(text);
        CHECK(failure.result == result);
        CHECK(contains(failure.text, text));
    }
    {
        Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
        const OpenFailure second = refusal(*xdp, cable, {.host = "10.7.0.12/24"});
        CHECK(second.result == -EBUSY);
    }
    CHECK(!cable.has_program(0));
    cable.ip(0, "link set eth0 down");
    CHECK(contains(refusal(*xdp, cable, {.host = "10.7.0.11"}).text, "ip link set dev eth0 up"));
}

TEST_CASE("xdp driver: an address that a station on the link has is refused") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    cable.ip(1, "link set eth0 address 02:00:00:00:00:02");
    for (const std::string host : {"10.7.0.2/24", "fd07::2/64"}) {
        CAPTURE(host);
        OpenFailure failure = {};
        CHECK(wait_until([&] {  // on a busy machine its answer may come too late for one attempt
            try {
                failure = refusal(*xdp, cable, {.host = host});
                return true;
            } catch (const std::runtime_error&) {
                return false;
            }
        }));
        CHECK(failure.result == -EADDRINUSE);
        CHECK(contains(failure.text, "station 02:00:00:00:00:02 on interface eth0 has"));
        CHECK(contains(failure.text, "address_probe=off"));
        // The way out where that station answers for all addresses: nobody is asked.
        CHECK(Station(*xdp, cable, 0, {.host = host, .extra = "address_probe=off"})
                  .statistics()["tx_address_probe_frames"] == 0);
    }
}

TEST_CASE("xdp driver: large frames up to a page, and no MTU beyond") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    {
        Cable cable(1, 3498);
        Station one(*xdp, cable, 0, {.host = "10.7.0.11/24"});
        Station other(*xdp, cable, 1, {.host = "10.7.0.12/24", .extra = "mode=generic"});
        CHECK(one.capabilities().max_datagram_bytes == 3470);
        exchange(one, other);
        exchange(other, one);
    }
    Cable cable(1, 9000);
    const OpenFailure failure = refusal(*xdp, cable, {.host = "10.7.0.11/24"});
    CHECK(failure.result == -EMSGSIZE);
    CHECK(contains(failure.text, "3498"));
    // A smaller datagram does it too, if the kernel does the work: a program in veth's driver wants small frames only.
    Station one(*xdp, cable, 0, {.host = "10.7.0.11/24", .max_datagram_bytes = 3470});
    Station other(*xdp, cable, 1, {.host = "10.7.0.12/24", .max_datagram_bytes = 3470});
    CHECK(contains(one.warnings(), "mode=generic"));
    exchange(one, other);
}

TEST_CASE("xdp driver: a card that would keep the VLAN's frames from it is warned of") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    if (!shell("ethtool --version")) {
        MESSAGE("skipped: a veth's features are changed with ethtool (Debian: ethtool)");
        return;
    }
    Cable cable;
    for (const bool takes_tags : {true, false}) {
        CAPTURE(takes_tags);
        cable.command(0, std::string("ethtool -K eth0 rxvlan ") + (takes_tags ? "on" : "off"));
        const std::string warnings =
            Station(*xdp, cable, 0, {.host = "10.7.0.11/24", .extra = "vlan=5"}).warnings();
        CHECK(contains(warnings, "ethtool -K eth0 rxvlan off") == takes_tags);
        CHECK(!contains(warnings, "rx-vlan-filter"));  // which no veth does
    }
}

TEST_CASE("xdp driver: the kernel is a member of its IPv6 group, and reports it") {
    const dlcp_io_table* xdp = xdp_or_skip();
    if (xdp == nullptr) return;
    Cable cable;
    {
        Station one(*xdp, cable, 0, {.host = "fd07::12:3456/64"});
        CHECK(cable.is_member(0, "ff02::1:ff12:3456"));
    }
    CHECK(!cable.is_member(0, "ff02::1:ff12:3456"));
}
