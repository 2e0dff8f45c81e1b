// Who is where: asking, being asked, silence and changes, step by step on a virtual clock, over ARP and over ND.
#include <functional>
#include <set>

#include "engine/bytes.hpp"
#include "ipstack/icmp.hpp"
#include "ipstack/ndp.hpp"
#include "ipstack/neighbours.hpp"
#include "ipstack_support.hpp"

namespace dlcp::ipstack {
namespace {

using Kind = InterfaceEvent::Kind;

constexpr MacAddress mac(std::uint8_t last) { return {2, 0, 0, 0, 0, last}; }

// An interface, and a peer that answers when it is let.
struct Link {
    explicit Link(bool is_v6, std::function<void(InterfaceConfig&)> change = {})
        : is_v6(is_v6),
          config([&] {
              InterfaceConfig out = config_of_host(1, is_v6);
              if (change) change(out);
              return out;
          }()),
          own(config),
          peer(std::make_unique<Interface>(config_of_host(2, is_v6))) {}

    UdpAddress address_of(unsigned host) const { return {config_of_host(host, is_v6).address, 7000}; }
    const Destination* reach(unsigned host = 2) { return own.reach(now, address_of(host)); }
    // Requests that are out now, and whether each is for one MAC alone.
    std::vector<bool> requests() {
        std::vector<bool> out;
        for (const Frame& frame : all_frames(own)) {
            out.push_back((frame[0] & 1) == 0);
            last = frame;
        }
        return out;
    }
    // Frames of both go to and fro until there are none.
    void exchange() {
        for (bool more = true; more;) {
            more = false;
            for (const Frame& frame : all_frames(own)) receive(*peer, now, frame), more = true;
            for (const Frame& frame : all_frames(*peer)) receive(own, now, frame), more = true;
        }
    }
    void step(Duration time) {
        now = now + time;
        if (own.next_deadline() <= now) own.handle_timer(now);
    }
    Frame datagram_from_peer() {
        const Destination* const to = peer->reach(now, {config.address, config.port});
        REQUIRE(to->resolved);
        return datagram_to(*to, {.source_port = 7000}, {1, 2, 3});
    }
    std::vector<Kind> events() {
        std::vector<Kind> out;
        while (const auto event = own.next_event()) out.push_back(event->kind);
        return out;
    }
    bool has_mac(const Destination* destination, std::uint8_t last_byte) {
        return destination->resolved && destination->headers[5] == last_byte;
    }

    bool is_v6;
    InterfaceConfig config;
    Time now{1'000'000};
    Interface own;
    std::unique_ptr<Interface> peer;
    Frame last;
};

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
        CHECK(link.own.counters().tx_address_requests == 1);
        CHECK(link.peer->counters().rx_address_requests == 1);
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
        CHECK(link.own.counters().neighbours_lost == 1);
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
        CHECK(link.own.counters().tx_address_requests == 2);
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
        InterfaceConfig changed = config_of_host(2, is_v6);
        changed.mac[5] = 77;
        link.peer = std::make_unique<Interface>(changed);
        link.peer->announce(link.now);
        link.exchange();
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
        CHECK(link.own.counters().tx_address_requests <= 6);
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
        CHECK(link.own.counters().tx_address_requests == 1);
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
        CHECK(link.own.counters().tx_address_requests == 0);
        CHECK(link.own.next_deadline() == time_never);
    }
}

TEST_CASE("ipstack neighbours: what nobody asked for makes no entry") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        link.peer->announce(link.now);
        link.exchange();
        CHECK(link.own.mac_of(link.address_of(2).ip) == std::nullopt);
        // A question for us does: who asks will send.
        link.peer->reach(link.now, {link.config.address, 7000});
        link.exchange();
        CHECK(link.own.mac_of(link.address_of(2).ip) == mac(2));
        CHECK(link.reach(2)->resolved);
        CHECK(link.own.counters().tx_address_requests == 0);
    }
}

TEST_CASE("ipstack neighbours: questions for others are not ours to answer") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        link.peer->reach(link.now, link.address_of(3));
        for (const Frame& frame : all_frames(*link.peer)) receive(link.own, link.now, frame);
        CHECK(all_frames(link.own).empty());
        CHECK(link.own.counters().rx_address_requests == 0);
    }
}

TEST_CASE("ipstack neighbours: our own frames, sent back to us, say nothing") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        link.own.announce(link.now);
        link.reach();
        for (const Frame& frame : all_frames(link.own)) receive(link.own, link.now, frame);
        CHECK(all_frames(link.own).empty());
        CHECK(link.own.counters().rx_address_conflicts == 0);
    }
}

TEST_CASE("ipstack neighbours: an address that two have is told, and defended at most every ten seconds") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        InterfaceConfig thief = link.config;
        thief.mac = mac(66);
        link.peer = std::make_unique<Interface>(thief);
        link.peer->announce(link.now);
        link.exchange();
        // Its announcement, and its defence against ours.
        CHECK(link.own.counters().rx_address_conflicts == 2);
        CHECK(link.peer->counters().rx_address_conflicts == 1);
        CHECK(link.own.counters().tx_own_frames == 1);
        const auto event = link.own.next_event();
        REQUIRE(event);
        CHECK(event->kind == Kind::address_taken);
        CHECK(event->ip == link.config.address);
        CHECK(event->mac == mac(66));
        for (int i = 0; i < 99; ++i) {
            link.step(milliseconds(100));
            link.peer->announce(link.now);
            link.exchange();
        }
        CHECK(link.own.counters().rx_address_conflicts == 101);
        CHECK(link.own.counters().tx_own_frames == 1);
        CHECK(link.events().empty());
        link.step(milliseconds(100));
        link.peer->announce(link.now);
        link.exchange();
        CHECK(link.own.counters().tx_own_frames == 2);
        CHECK(link.events() == Kinds{Kind::address_taken});
    }
}

TEST_CASE("ipstack neighbours: who we are is said twice") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        link.own.announce(link.now);
        CHECK(link.requests().size() == 1);
        CHECK(link.own.next_deadline() == link.now + seconds(2));
        link.step(seconds(2));
        CHECK(link.requests().size() == 1);
        CHECK(link.own.next_deadline() == time_never);
    }
}

TEST_CASE("ipstack neighbours: advertisements by the rules of RFC 4861, 7.2.5") {
    Link link(true);
    const Destination* const destination = link.reach();
    const IpAddress peer = destination->address.ip;
    const auto advertise = [&](std::optional<MacAddress> said, bool solicited, bool overrides) {
        Frame frame(86);
        std::uint32_t at = write_ethernet(link.config.mac, mac(2), 0, ethertype_ipv6, frame.data());
        const NeighbourMessage message{.type = NeighbourMessage::Type::advertisement,
                                       .solicited = solicited,
                                       .overrides = overrides,
                                       .target = peer,
                                       .mac = said};
        const std::uint32_t bytes = write_neighbour_message(message, frame.data() + 54);
        at += write_ip({.source = peer,
                        .destination = link.config.address,
                        .protocol = protocol_icmpv6,
                        .hop_limit = 255,
                        .payload_bytes = bytes},
                       frame.data() + at);
        write_icmp_checksum({frame.data() + at, bytes}, peer, link.config.address);
        frame.resize(at + bytes);
        CHECK(receive(link.own, link.now, frame) == FrameKind::other);
    };
    const auto is_stale = [&] {
        link.own.used(link.now, *destination);
        const bool stale = link.own.next_deadline() != time_never;
        return stale;
    };
    advertise(std::nullopt, true, true);  // nothing said
    CHECK_FALSE(destination->resolved);
    advertise(mac(2), true, false);
    CHECK(link.has_mac(destination, 2));
    CHECK_FALSE(is_stale());
    advertise(mac(2), false, true);  // the same, not asked for: nothing changes
    CHECK_FALSE(is_stale());
    advertise(mac(3), true, false);  // another, not to override: in doubt, kept
    CHECK(link.has_mac(destination, 2));
    CHECK(is_stale());
    advertise(std::nullopt, true, false);  // the same one, asked for
    CHECK(link.has_mac(destination, 2));
    CHECK_FALSE(is_stale());
    advertise(mac(4), false, true);  // another, to override, not asked for
    CHECK(link.has_mac(destination, 4));
    CHECK(is_stale());
    advertise(mac(5), true, true);
    CHECK(link.has_mac(destination, 5));
    CHECK_FALSE(is_stale());
    CHECK(link.own.counters().rx_malformed == 0);
    advertise(MacAddress{0x33, 0x33}, true, true);  // a group is nobody's address
    CHECK(link.has_mac(destination, 5));
    CHECK(link.own.counters().rx_malformed == 1);
}

TEST_CASE("ipstack neighbours: forged and broken messages are counted, not believed") {
    Link link(true);
    const Destination* const destination = link.reach();
    Frame request = next_frame(link.own);
    receive(*link.peer, link.now, request);
    const Frame answer = next_frame(*link.peer);
    const auto mended = [&](Frame frame) {
        std::uint8_t* const ip = frame.data() + 14;
        const std::size_t bytes = wire::load16(ip + 4);
        write_icmp_checksum({ip + 40, bytes},
                            {.bytes =
                                 [&] {
                                     std::array<std::uint8_t, 16> out;
                                     std::copy_n(ip + 8, 16, out.begin());
                                     return out;
                                 }(),
                             .bits = 128},
                            link.config.address);
        return frame;
    };
    const auto changed = [&](std::size_t at, std::uint8_t value) {
        Frame frame = answer;
        frame[at] = value;
        return frame;
    };
    const InterfaceCounters& counters = link.own.counters();
    receive(link.own, link.now, mended(changed(14 + 7, 254)));  // from beyond the link
    CHECK(counters.rx_malformed == 1);
    receive(link.own, link.now, mended(changed(54 + 1, 1)));  // code
    CHECK(counters.rx_malformed == 2);
    receive(link.own, link.now, mended(changed(54 + 25, 0)));  // an option of no length
    CHECK(counters.rx_malformed == 3);
    receive(link.own, link.now, mended(changed(54 + 25, 2)));  // one longer than the message
    CHECK(counters.rx_malformed == 4);
    receive(link.own, link.now, changed(54 + 31, 9));
    CHECK(counters.rx_bad_checksum == 1);
    Frame router = changed(54, 134);
    receive(link.own, link.now, mended(router));
    router[54] = 137;
    receive(link.own, link.now, mended(router));
    CHECK(counters.rx_other_protocol == 2);
    CHECK_FALSE(destination->resolved);
    receive(link.own, link.now, mended(answer));
    CHECK(destination->resolved);

    Link arp(false);
    const Destination* const other = arp.reach();
    receive(*arp.peer, arp.now, next_frame(arp.own));
    const Frame reply = next_frame(*arp.peer);
    for (const std::size_t at : {14, 15, 16, 17, 18, 19, 20, 21, 22}) {
        Frame frame = reply;
        frame[at] ^= 0x11;
        CAPTURE(at);
        const std::uint64_t before = arp.own.counters().rx_malformed;
        receive(arp.own, arp.now, frame);
        CHECK(arp.own.counters().rx_malformed == before + 1);
    }
    CHECK_FALSE(other->resolved);
    receive(arp.own, arp.now, reply);
    CHECK(other->resolved);
}

TEST_CASE("ipstack neighbours: echo is answered to one asker, not to a group, not if it is turned off") {
    for (const bool is_v6 : {false, true}) {
        const auto request = [&](std::size_t payload_bytes) {
            const InterfaceConfig from = config_of_host(2, is_v6), to = config_of_host(1, is_v6);
            Frame message(8 + payload_bytes, 0x5a);
            std::fill_n(message.begin(), 8, std::uint8_t{0});
            message[0] = is_v6 ? icmpv6_echo_request : icmp_echo_request;
            write_icmp_checksum(message, from.address, to.address);
            Frame frame(54);
            std::uint32_t at =
                write_ethernet(to.mac, from.mac, 0, is_v6 ? ethertype_ipv6 : ethertype_ipv4, frame.data());
            at += write_ip({.source = from.address,
                            .destination = to.address,
                            .protocol = is_v6 ? protocol_icmpv6 : protocol_icmp,
                            .payload_bytes = static_cast<std::uint32_t>(message.size())},
                           frame.data() + at);
            frame.resize(at);
            frame.insert(frame.end(), message.begin(), message.end());
            return frame;
        };
        Link link(is_v6);
        const std::size_t largest = 1500 - (is_v6 ? 48 : 28);
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{56}, largest}) {
            receive(link.own, link.now, request(bytes));
            const Frame reply = next_frame(link.own);
            CHECK(reply.size() == std::max<std::size_t>(request(bytes).size(), 60));
            CHECK(receive(*link.peer, link.now, reply) == FrameKind::other);  // its checksums hold
            CHECK(link.peer->counters().rx_bad_checksum == 0);
        }
        CHECK(link.own.counters().rx_echo_requests == 4);
        receive(link.own, link.now, request(largest + 1));
        CHECK(all_frames(link.own).empty());
        CHECK(link.own.counters().tx_own_frames_dropped == 1);
        Frame broadcast = request(8);
        std::fill_n(broadcast.begin(), 6, std::uint8_t{0xff});
        receive(link.own, link.now, broadcast);
        CHECK(all_frames(link.own).empty());
        Frame damaged = request(8);
        damaged.back() ^= 1;
        receive(link.own, link.now, damaged);
        CHECK(link.own.counters().rx_bad_checksum == 1);
        Link quiet(is_v6, [](InterfaceConfig& config) { config.answers_echo = false; });
        receive(quiet.own, quiet.now, request(8));
        CHECK(all_frames(quiet.own).empty());
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
        CHECK(link.own.counters().tx_own_frames_dropped == 100 - Interface::own_frames_max);
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
        // All are silent: each is lost, the last 256 are told.
        for (int i = 0; i < 20; ++i) link.step(milliseconds(100));
        CHECK(link.own.counters().neighbours_lost == Interface::destinations_max - Neighbours::strangers_max);
        CHECK(link.events().size() == 256);
        CHECK(link.own.next_deadline() == time_never);
    }
}

}  // namespace dlcp::ipstack
