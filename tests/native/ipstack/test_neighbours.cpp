// Who is where: asking, silence and changes, step by step on a virtual clock, over ARP and over neighbour discovery.
#include "ipstack/neighbours.hpp"
#include "ipstack_link.hpp"

namespace dlcp::ipstack {
namespace {

using Bools = std::vector<bool>;
using Kinds = std::vector<Kind>;

}  // namespace

TEST_CASE("ipstack neighbours: an answer resolves, and a datagram then arrives") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        const Destination* const destination = link.reach();
        REQUIRE(destination != nullptr);
        CHECK_FALSE(destination->resolved);
        CHECK(link.own.resolutions() == 0);
        CHECK(link.reach() == destination);  // asks only once
        link.exchange();
        CHECK(link.own.counters().tx_address_request_frames == 1);
        CHECK(link.peer->counters().rx_address_request_frames == 1);
        CHECK(link.own.resolutions() == 1);
        CHECK(link.has_mac(destination, 2));
        CHECK(link.own.mac_of(destination->address.ip) == mac(2));
        CHECK(receive(*link.peer, link.now, datagram_to(*destination, {.source_port = 1}, {9})) ==
              FrameKind::datagram);
        // The peer learnt from being asked.
        CHECK(link.peer->reach(link.now, {link.config.address, 7000})->resolved);
        CHECK(link.own.next_deadline() == time_never);
        CHECK(link.events().empty());
    }
}

TEST_CASE(
    "ipstack neighbours: a silent one is asked three times, given up once, then asked each second that it is "
    "wanted") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        const Destination* const destination = link.reach();
        CHECK(link.requests() == Bools{false});
        link.step(milliseconds(49));
        CHECK(link.requests().empty());
        link.step(milliseconds(1));
        CHECK(link.requests() == Bools{false});
        link.step(milliseconds(200));
        CHECK(link.requests() == Bools{false});
        link.step(milliseconds(999));
        CHECK(link.events().empty());
        link.step(milliseconds(1));
        CHECK(link.requests().empty());
        CHECK(link.events() == Kinds{Kind::neighbour_lost});
        CHECK(link.own.counters().lost_neighbours == 1);
        CHECK(link.own.next_deadline() == time_never);
        // Nobody wants it: nobody asks.
        link.step(seconds(10));
        CHECK(link.requests().empty());
        for (int i = 0; i < 1000; ++i) {
            link.step(milliseconds(10));
            link.own.ask(link.now, *destination);
            link.own.used(link.now, *destination);
            link.reach();
        }
        const std::size_t asked = link.requests().size();
        CHECK(asked >= 9);
        CHECK(asked <= 11);
        CHECK(link.events().empty());  // told once
        CHECK_FALSE(destination->resolved);
        link.step(seconds(1));
        link.own.ask(link.now, *destination);
        link.exchange();
        CHECK(link.has_mac(destination, 2));
        CHECK(link.events() == Kinds{Kind::neighbour_found});
        // Found once, whatever its MAC becomes.
        link.replace_card(77);
        CHECK(link.has_mac(destination, 77));
        CHECK(link.events().empty());
    }
}

TEST_CASE(
    "ipstack neighbours: one that is heard of stays reachable, one that is not is probed, then searched, then "
    "lost") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        const Destination* const destination = link.reach();
        link.exchange();
        // Half a minute is nothing to do; longer as long as datagrams come from it.
        for (int i = 0; i < 100; ++i) {
            link.step(seconds(1));
            receive(link.own, link.now, link.datagram_from_peer());
            link.own.used(link.now, *destination);
        }
        CHECK(link.requests().empty());
        CHECK(link.own.next_deadline() == time_never);

        link.step(seconds(30));
        link.own.used(link.now, *destination);  // stale: it is used, and asked in five seconds
        CHECK(link.requests().empty());
        CHECK(link.own.next_deadline() == link.now + seconds(5));
        // Heard of in time: never mind.
        receive(link.own, link.now, link.datagram_from_peer());
        CHECK(link.own.next_deadline() == time_never);

        link.step(seconds(31));
        link.own.used(link.now, *destination);
        link.step(seconds(5));
        CHECK(link.requests() == Bools{true});
        link.step(milliseconds(50));
        CHECK(link.requests() == Bools{true});
        link.step(milliseconds(200));
        CHECK(link.requests() == Bools{true});
        link.step(seconds(1));
        CHECK(link.requests() == Bools{false});
        CHECK(link.has_mac(destination, 2));  // packets still go
        link.step(milliseconds(50));
        link.step(milliseconds(200));
        CHECK(link.requests() == Bools{false, false});
        CHECK(destination->resolved);
        link.step(seconds(1));
        CHECK_FALSE(destination->resolved);
        CHECK(link.events() == Kinds{Kind::neighbour_lost});
        CHECK(link.own.mac_of(destination->address.ip) == std::nullopt);

        // A datagram from it is reason enough to ask.
        link.step(seconds(2));
        receive(link.own, link.now, link.datagram_from_peer());
        link.exchange();
        CHECK(destination->resolved);
        CHECK(link.events() == Kinds{Kind::neighbour_found});
    }
}

TEST_CASE("ipstack neighbours: an answer to a probe ends it") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        const Destination* const destination = link.reach();
        link.exchange();
        link.step(seconds(40));
        link.own.used(link.now, *destination);
        link.step(seconds(5));
        link.exchange();
        CHECK(link.own.next_deadline() == time_never);
        CHECK(link.own.counters().tx_address_request_frames == 2);
        CHECK(destination->resolved);
    }
}

TEST_CASE("ipstack neighbours: another MAC, announced, changes all destinations at once") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        const Destination* const destination = link.reach();
        const Destination* const second = link.own.reach(link.now, {destination->address.ip, 7001});
        CHECK(second != destination);
        link.exchange();
        CHECK(link.own.resolutions() == 2);
        link.replace_card(77);
        CHECK(link.has_mac(destination, 77));
        CHECK(link.has_mac(second, 77));
        CHECK(link.own.resolutions() == 2);
        CHECK(receive(*link.peer, link.now, datagram_to(*destination, {}, {1})) == FrameKind::datagram);
        CHECK(link.events().empty());
    }
}

TEST_CASE("ipstack neighbours: another MAC, not announced, is found out by the datagrams that come from it") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        const Destination* const destination = link.reach();
        link.exchange();
        InterfaceConfig changed = config_of_host(2, is_v6);
        changed.mac[5] = 77;
        changed.neighbours = {{link.config.address, link.config.mac}};
        link.peer = std::make_unique<Interface>(changed);
        for (int i = 0; i < 400 && !link.has_mac(destination, 77); ++i) {
            link.step(milliseconds(10));
            receive(link.own, link.now, link.datagram_from_peer());
            link.exchange();
        }
        CHECK(link.has_mac(destination, 77));
        CHECK(link.now.value < seconds(3).value);
        // One after the other, not one for each datagram.
        CHECK(link.own.counters().tx_address_request_frames <= 6);
    }
}

TEST_CASE(
    "ipstack neighbours: one that sends through another MAC than it answers with is asked once a second at most") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        const Destination* const destination = link.reach();
        link.exchange();
        const MacAddress other = mac(88);
        const auto hear = [&](const MacAddress& from) {
            link.own.heard(link.now, {.source = destination->address, .source_mac = from.data()});
        };
        for (int i = 0; i < 1000; ++i) {
            link.step(milliseconds(10));
            hear(other);
            link.exchange();
        }
        CHECK(link.has_mac(destination, 2));
        CHECK(link.own.counters().tx_address_request_frames >= 8);
        CHECK(link.own.counters().tx_address_request_frames <= 11);
        // It shows now and then that the MAC known is right: nobody is asked.
        const std::uint64_t asked = link.own.counters().tx_address_request_frames;
        for (int i = 0; i < 1000; ++i) {
            link.step(milliseconds(10));
            hear(i % 2 == 0 ? mac(2) : other);
        }
        CHECK(link.own.counters().tx_address_request_frames == asked);

        // Of one that nothing is sent to, nothing is asked.
        Link stranger(is_v6);
        stranger.peer->reach(stranger.now, stranger.address_of(1));
        stranger.exchange();
        REQUIRE(stranger.own.mac_of(destination->address.ip));
        stranger.step(seconds(60));
        stranger.own.heard(stranger.now, {.source = destination->address, .source_mac = other.data()});
        CHECK(stranger.requests().empty());
        CHECK(stranger.own.next_deadline() == time_never);
    }
}

TEST_CASE("ipstack neighbours: who cannot be reached") {
    for (const bool is_v6 : {false, true}) {
        CAPTURE(is_v6);
        Link link(is_v6);
        const auto unreachable = [&](const char* ip, std::uint16_t port = 7000) {
            CAPTURE(ip);
            CHECK(link.own.reach(link.now, {*parse_ip(ip), port}) == nullptr);
        };
        CHECK(link.own.reach(link.now, {}) == nullptr);
        CHECK(link.reach(1) == nullptr);  // ourselves
        unreachable(is_v6 ? "fd00::2" : "10.0.0.2", 0);
        unreachable(is_v6 ? "10.0.0.2" : "fd00::2");    // the other family
        unreachable(is_v6 ? "fd00:1::2" : "10.0.1.2");  // not on the link, no gateway
        unreachable(is_v6 ? "ff02::1" : "224.0.0.1");
        unreachable(is_v6 ? "::1" : "127.0.0.1");
        unreachable(is_v6 ? "::" : "0.0.0.0");
        if (!is_v6) {
            unreachable("10.0.0.255");
            unreachable("10.0.0.0");
            unreachable("255.255.255.255");
        } else {
            CHECK(link.own.reach(link.now, {*parse_ip("fe80::5"), 1}) != nullptr);
        }
    }
    // A gateway must be somebody else.
    Link own_gateway(false, [](InterfaceConfig& config) { config.gateway = config.address; });
    CHECK(own_gateway.own.reach({0}, {*parse_ip("192.0.2.1"), 1}) == nullptr);
    // Everybody is on the link with no prefix; a link of two has no broadcast (RFC 3021).
    Link everybody(false, [](InterfaceConfig& config) { config.prefix_bits = 0; });
    CHECK(everybody.own.reach({0}, {*parse_ip("192.0.2.255"), 1}) != nullptr);
    Link two(false, [](InterfaceConfig& config) { config.prefix_bits = 31; });
    CHECK(two.own.reach({0}, {*parse_ip("10.0.0.0"), 1}) != nullptr);
}

TEST_CASE("ipstack neighbours: a gateway is one neighbour of many destinations") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6, [&](InterfaceConfig& config) { config.gateway = config_of_host(2, is_v6).address; });
        std::vector<const Destination*> destinations;
        for (std::uint8_t i = 1; i <= 20; ++i) {
            UdpAddress far{*parse_ip(is_v6 ? "fd00:1::" : "192.0.2.0"), 7000};
            far.ip.bytes[is_v6 ? 15 : 3] = i;
            destinations.push_back(link.own.reach(link.now, far));
            REQUIRE(destinations.back() != nullptr);
            CHECK(destinations.back()->next_hop == destinations[0]->next_hop);
        }
        destinations.push_back(link.reach(2));
        link.exchange();
        CHECK(link.own.counters().tx_address_request_frames == 1);
        CHECK(link.own.resolutions() == destinations.size());
        for (const Destination* destination : destinations) CHECK(link.has_mac(destination, 2));
        // Datagrams from far away come through the gateway, and show that it is there.
        link.step(seconds(31));
        link.own.used(link.now, *destinations[0]);
        const MacAddress from = mac(2);
        link.own.heard(link.now, {.source = destinations[3]->address, .source_mac = from.data()});
        CHECK(link.own.next_deadline() == time_never);
    }
}

TEST_CASE("ipstack neighbours: static ones are never asked for, changed or lost") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6, [&](InterfaceConfig& config) {
            config.neighbours = {{config_of_host(2, is_v6).address, mac(99)},
                                 {*parse_ip(is_v6 ? "10.0.0.3" : "fd00::3"), mac(98)}};
        });
        const Destination* const destination = link.reach();
        CHECK(link.has_mac(destination, 99));
        link.peer->announce(link.now);
        link.peer->reach(link.now, {link.config.address, 7000});
        link.exchange();
        for (int i = 0; i < 100; ++i) {
            link.step(seconds(1));
            link.own.used(link.now, *destination);
            link.own.ask(link.now, *destination);
            const MacAddress other = mac(2);
            link.own.heard(link.now, {.source = destination->address, .source_mac = other.data()});
        }
        CHECK(link.has_mac(destination, 99));
        CHECK(link.own.counters().tx_address_request_frames == 0);
        CHECK(link.own.next_deadline() == time_never);
    }
}

TEST_CASE("ipstack neighbours: a thousand at once are all asked, and none is given up for want of room") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6, [](InterfaceConfig& config) { config.prefix_bits = 8; });
        std::vector<std::unique_ptr<Interface>> others;
        for (std::size_t i = 0; i < 1000; ++i) {
            InterfaceConfig config = link.config;
            config.mac = {2, 1, 0, 0, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)};
            const std::size_t end = is_v6 ? 16 : 4;
            config.address.bytes[end - 3] = 1;
            config.address.bytes[end - 2] = static_cast<std::uint8_t>(i >> 8);
            config.address.bytes[end - 1] = static_cast<std::uint8_t>(i);
            others.push_back(std::make_unique<Interface>(config));
            REQUIRE(link.own.reach(link.now, {config.address, 7000}) != nullptr);
        }
        for (int i = 0; i < 40; ++i) {
            for (const Frame& frame : all_frames(link.own)) {
                for (const auto& other : others) {
                    receive(*other, link.now, frame);
                    for (const Frame& answer : all_frames(*other)) receive(link.own, link.now, answer);
                }
            }
            link.step(milliseconds(1));
        }
        CHECK(link.own.resolutions() == others.size());
        CHECK(link.own.counters().tx_address_request_frames == others.size());
        CHECK(link.own.counters().tx_own_dropped_frames == 0);
        CHECK(link.events().empty());
    }
}

TEST_CASE("ipstack neighbours: every table has its bound") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6, [](InterfaceConfig& config) { config.prefix_bits = 8; });
        const auto host = [&](std::size_t i) {
            IpAddress out = link.config.address;
            const std::size_t end = is_v6 ? 16 : 4;
            out.bytes[end - 3] = 7;
            out.bytes[end - 2] = static_cast<std::uint8_t>(i >> 8);
            out.bytes[end - 1] = static_cast<std::uint8_t>(i);
            return out;
        };
        const auto asked_by = [&](std::size_t i) {
            InterfaceConfig config = link.config;
            config.address = host(i);
            config.mac = {2, 1, 0, 0, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)};
            Interface asker(config);
            asker.reach(link.now, {link.config.address, 7000});
            receive(link.own, link.now, next_frame(asker));
        };
        // Frames of its own wait for room, and no more than own_frames_max.
        for (std::size_t i = 0; i < 100; ++i) asked_by(i);
        CHECK(link.requests().size() == Interface::own_frames_max);
        CHECK(link.own.counters().tx_own_dropped_frames == 100 - Interface::own_frames_max);
        // Who asks, and is sent nothing, is forgotten in its turn.
        for (std::size_t i = 100; i < 3000; ++i) asked_by(i);
        std::size_t known = 0;
        for (std::size_t i = 0; i < 3000; ++i) known += link.own.mac_of(host(i)).has_value();
        CHECK(known == Neighbours::strangers_max);
        CHECK(link.own.mac_of(host(2999)));
        // Destinations take their place.
        for (std::size_t i = 0; i < Interface::destinations_max; ++i) {
            const Destination* const destination = link.own.reach(link.now, {host(i), 7000});
            REQUIRE(destination != nullptr);
            REQUIRE(destination->resolved == (i >= 3000 - Neighbours::strangers_max && i < 3000));
        }
        CHECK(link.own.reach(link.now, {host(Interface::destinations_max), 7000}) == nullptr);
        CHECK(link.own.reach(link.now, {host(5), 7000}) != nullptr);
        // The table is full: another asker is answered, and not kept.
        all_frames(link.own);
        asked_by(20'000);
        CHECK(link.requests().size() == 1);
        CHECK_FALSE(link.own.mac_of(host(20'000)));
        // All are silent: each is asked three times, as there is room, and lost; the last 256 are told.
        const std::size_t silent = Interface::destinations_max - Neighbours::strangers_max;
        for (int i = 0; i < 2000; ++i) {
            link.step(milliseconds(1));
            link.requests();
        }
        CHECK(link.own.counters().lost_neighbours == silent);
        CHECK(link.own.counters().tx_address_request_frames == 3 * silent);
        CHECK(link.events().size() == 256);
        CHECK(link.own.next_deadline() == time_never);
    }
}

}  // namespace dlcp::ipstack
