// What others say: who asks for us, who has our address, advertisements, echo, and what is forged or broken.
#include "engine/bytes.hpp"
#include "ipstack_link.hpp"

namespace dlcp::ipstack {

TEST_CASE("ipstack messages: what nobody asked for makes no entry") {
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
        CHECK(link.own.counters().tx_address_request_frames == 0);
    }
}

TEST_CASE("ipstack messages: questions for others are not ours to answer") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        link.peer->reach(link.now, link.address_of(3));
        for (const Frame& frame : all_frames(*link.peer)) receive(link.own, link.now, frame);
        CHECK(all_frames(link.own).empty());
        CHECK(link.own.counters().rx_address_request_frames == 0);
    }
}

TEST_CASE("ipstack messages: our own frames, sent back to us, say nothing") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        link.own.announce(link.now);
        link.reach();
        for (const Frame& frame : all_frames(link.own)) receive(link.own, link.now, frame);
        CHECK(all_frames(link.own).empty());
        CHECK(link.own.counters().address_conflict_frames == 0);
    }
}

TEST_CASE("ipstack messages: an address that two have is told, and defended at most every ten seconds") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        InterfaceConfig thief = link.config;
        thief.mac = mac(66);
        link.peer = std::make_unique<Interface>(thief);
        link.peer->announce(link.now);
        link.exchange();
        // Its announcement, and its defence against ours.
        CHECK(link.own.counters().address_conflict_frames == 2);
        CHECK(link.peer->counters().address_conflict_frames == 1);
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
        CHECK(link.own.counters().address_conflict_frames == 101);
        CHECK(link.own.counters().tx_own_frames == 1);
        CHECK(link.events().empty());
        link.step(milliseconds(100));
        link.peer->announce(link.now);
        link.exchange();
        CHECK(link.own.counters().tx_own_frames == 2);
        CHECK(link.events() == std::vector{Kind::address_taken});
    }
}

TEST_CASE("ipstack messages: who we are is said twice") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        const Time start = link.now;
        const auto announcements = [&] {
            const std::vector<Frame> frames = all_frames(link.own);
            return std::count_if(frames.begin(), frames.end(),
                                 [](const Frame& frame) { return !is_listener_report(frame); });
        };
        link.own.announce(start);
        CHECK(announcements() == 1);
        if (is_v6) {
            // The group's second report comes between.
            CHECK(link.own.next_deadline() <= start + seconds(1));
            link.step(seconds(1));
            CHECK(announcements() == 0);
        }
        CHECK(link.own.next_deadline() == start + seconds(2));
        link.step(link.own.next_deadline() - link.now);
        CHECK(announcements() == 1);
        CHECK(link.own.next_deadline() == time_never);
    }
}

TEST_CASE("ipstack messages: advertisements by the rules of RFC 4861, 7.2.5") {
    Link link(true);
    const Destination* const destination = link.reach();
    const IpAddress peer = destination->address.ip;
    const auto advertise = [&](std::optional<MacAddress> said, bool solicited, bool overrides) {
        const Frame frame = neighbour_frame(config_of_host(2, true), link.config.address, link.config.mac,
                                            {.type = NeighbourMessage::Type::advertisement,
                                             .solicited = solicited,
                                             .overrides = overrides,
                                             .target = peer,
                                             .mac = said});
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
    CHECK(link.own.counters().rx_malformed_frames == 0);
    advertise(MacAddress{0x33, 0x33}, true, true);  // a group is nobody's address
    CHECK(link.has_mac(destination, 5));
    CHECK(link.own.counters().rx_malformed_frames == 1);
}

TEST_CASE("ipstack messages: forged and broken messages are counted, not believed") {
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
    CHECK(counters.rx_malformed_frames == 1);
    receive(link.own, link.now, mended(changed(54 + 1, 1)));  // code
    CHECK(counters.rx_malformed_frames == 2);
    receive(link.own, link.now, mended(changed(54 + 25, 0)));  // an option of no length
    CHECK(counters.rx_malformed_frames == 3);
    receive(link.own, link.now, mended(changed(54 + 25, 2)));  // one longer than the message
    CHECK(counters.rx_malformed_frames == 4);
    receive(link.own, link.now, changed(54 + 31, 9));
    CHECK(counters.rx_bad_checksum_frames == 1);
    Frame router = changed(54, 134);
    receive(link.own, link.now, mended(router));
    router[54] = 137;
    receive(link.own, link.now, mended(router));
    CHECK(counters.rx_other_protocol_frames == 2);
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
        const std::uint64_t before = arp.own.counters().rx_malformed_frames;
        receive(arp.own, arp.now, frame);
        CHECK(arp.own.counters().rx_malformed_frames == before + 1);
    }
    CHECK_FALSE(other->resolved);
    receive(arp.own, arp.now, reply);
    CHECK(other->resolved);
}

TEST_CASE("ipstack messages: echo is answered to one asker, not to a group, not if it is turned off") {
    for (const bool is_v6 : {false, true}) {
        const auto request = [&](std::size_t payload_bytes) {
            Frame message(8 + payload_bytes, 0x5a);
            std::fill_n(message.begin(), 8, std::uint8_t{0});
            message[0] = is_v6 ? icmpv6_echo_request : icmp_echo_request;
            const InterfaceConfig to = config_of_host(1, is_v6);
            return icmp_frame(config_of_host(2, is_v6), to.address, to.mac, message);
        };
        Link link(is_v6);
        const std::size_t largest = 1500 - (is_v6 ? 48 : 28);
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{56}, largest}) {
            receive(link.own, link.now, request(bytes));
            const Frame reply = next_frame(link.own);
            CHECK(reply.size() == std::max<std::size_t>(request(bytes).size(), 60));
            CHECK(receive(*link.peer, link.now, reply) == FrameKind::other);  // its checksums hold
            CHECK(link.peer->counters().rx_bad_checksum_frames == 0);
        }
        CHECK(link.own.counters().rx_echo_request_frames == 4);
        receive(link.own, link.now, request(largest + 1));
        CHECK(all_frames(link.own).empty());
        CHECK(link.own.counters().rx_oversized_frames == 1);
        Frame broadcast = request(8);
        std::fill_n(broadcast.begin(), 6, std::uint8_t{0xff});
        receive(link.own, link.now, broadcast);
        CHECK(all_frames(link.own).empty());
        Frame damaged = request(8);
        damaged.back() ^= 1;
        receive(link.own, link.now, damaged);
        CHECK(link.own.counters().rx_bad_checksum_frames == 1);
        Link quiet(is_v6, [](InterfaceConfig& config) { config.answers_echo = false; });
        receive(quiet.own, quiet.now, request(8));
        CHECK(all_frames(quiet.own).empty());
    }
}

TEST_CASE("ipstack messages: an answer that nobody asked for proves nothing, a question neither") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        const Destination* const destination = link.reach();
        link.exchange();
        // Asked by the one that is known already: nothing changes.
        REQUIRE(link.peer->reach(link.now, link.address_of(1)) != nullptr);
        const InterfaceConfig peer = config_of_host(2, is_v6);
        InterfaceConfig again = peer;
        Interface asker(again);
        asker.reach(link.now, link.address_of(1));
        receive(link.own, link.now, next_frame(asker));
        link.own.used(link.now, *destination);
        CHECK(link.own.next_deadline() == time_never);
        if (is_v6) continue;
        // A reply to us that we did not ask for does not make the half minute longer.
        link.step(seconds(29));
        receive(link.own, link.now,
                arp_frame(link.config.mac, {.operation = ArpPacket::Operation::reply,
                                            .sender_mac = peer.mac,
                                            .sender_ip = peer.address,
                                            .target_mac = link.config.mac,
                                            .target_ip = link.config.address}));
        link.step(seconds(2));
        link.own.used(link.now, *destination);
        CHECK(link.own.next_deadline() == link.now + seconds(5));
    }
}

TEST_CASE("ipstack messages: who asks from beyond the link is answered, not learnt") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        InterfaceConfig far = config_of_host(2, is_v6);
        far.address = *parse_ip(is_v6 ? "fd00:1::2" : "10.0.1.2");
        far.prefix_bits = 0;
        Interface asker(far);
        asker.reach(link.now, link.address_of(1));
        receive(link.own, link.now, next_frame(asker));
        CHECK(all_frames(link.own).size() == 1);
        CHECK_FALSE(link.own.mac_of(far.address));
    }
}

TEST_CASE("ipstack messages: solicitations for others, from us, from nobody") {
    Link link(true);
    const InterfaceConfig peer = config_of_host(2, true);
    const IpAddress group = solicited_node(link.config.address);
    const auto solicit = [&](const IpAddress& source, const IpAddress& target, const IpAddress& to,
                             std::optional<MacAddress> said) {
        InterfaceConfig from = peer;
        from.address = source;
        receive(link.own, link.now,
                neighbour_frame(from, to, is_multicast(to) ? multicast_mac(to) : link.config.mac,
                                {.target = target, .mac = said}));
        return all_frames(link.own).size();
    };
    const InterfaceCounters& counters = link.own.counters();
    // Of our group, for its last three bytes are ours.
    CHECK(solicit(peer.address, *parse_ip("fd00:7::1"), group, peer.mac) == 0);
    CHECK(counters.rx_address_request_frames == 0);
    CHECK(solicit(link.config.address, *parse_ip("fd00::3"), link.config.address, peer.mac) == 1);
    CHECK(counters.address_conflict_frames == 1);
    // From "::" to one host, or with a MAC: no such thing.
    const IpAddress nobody{.bits = 128};
    CHECK(solicit(nobody, link.config.address, link.config.address, std::nullopt) == 0);
    CHECK(solicit(nobody, link.config.address, group, peer.mac) == 0);
    CHECK(counters.rx_malformed_frames == 2);
    CHECK(solicit(nobody, link.config.address, group, std::nullopt) == 1);
    CHECK(solicit(peer.address, *parse_ip("ff02::1"), group, peer.mac) == 0);
    CHECK(solicit(peer.address, nobody, group, peer.mac) == 0);
    CHECK(solicit(*parse_ip("ff02::5"), link.config.address, group, peer.mac) == 0);
    CHECK(counters.rx_malformed_frames == 5);
    CHECK(solicit(*parse_ip("::1"), link.config.address, group, peer.mac) == 0);
    CHECK(counters.rx_malformed_frames == 6);
    // Without a MAC the frame's is answered, and nothing learnt.
    CHECK(solicit(peer.address, link.config.address, group, std::nullopt) == 1);
    CHECK_FALSE(link.own.mac_of(peer.address));

    // An answer to all that claims to be one to us.
    REQUIRE(link.reach() != nullptr);
    receive(link.own, link.now,
            neighbour_frame(peer, all_nodes_group, multicast_mac(all_nodes_group),
                            {.type = NeighbourMessage::Type::advertisement,
                             .solicited = true,
                             .target = peer.address,
                             .mac = peer.mac}));
    CHECK(counters.rx_malformed_frames == 7);
    CHECK_FALSE(link.own.mac_of(peer.address));
}

TEST_CASE("ipstack messages: ICMP that is short, of another code, or to others") {
    for (const bool is_v6 : {false, true}) {
        Link link(is_v6);
        const InterfaceConfig peer = config_of_host(2, is_v6);
        const std::uint8_t type = is_v6 ? icmpv6_echo_request : icmp_echo_request;
        const InterfaceCounters& counters = link.own.counters();
        receive(link.own, link.now, icmp_frame(peer, link.config.address, link.config.mac, {type, 0, 0, 0}));
        CHECK(counters.rx_malformed_frames == 1);
        receive(link.own, link.now,
                icmp_frame(peer, link.config.address, link.config.mac, {type, 1, 0, 0, 0, 0, 0, 0}));
        CHECK(counters.rx_malformed_frames == 2);
        CHECK(receive(link.own, link.now,
                      icmp_frame(peer, link.address_of(3).ip, link.config.mac, {type, 0, 0, 0, 0, 0, 0, 0})) ==
              FrameKind::refused);
        CHECK(counters.rx_other_address_frames == 1);
        CHECK(receive(link.own, link.now,
                      icmp_frame(peer, link.config.address, mac(3), {type, 0, 0, 0, 0, 0, 0, 0})) ==
              FrameKind::refused);
        CHECK(counters.rx_other_address_frames == 2);
        CHECK(all_frames(link.own).empty());
        CHECK(counters.rx_echo_request_frames == 0);
    }
}

}  // namespace dlcp::ipstack
