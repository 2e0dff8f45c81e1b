// Datagrams through headers written and read: round trips, damage, and each reason to refuse a frame.
#include <cstring>
#include <set>
#include <string_view>

#include "engine/bytes.hpp"
#include "ipstack_support.hpp"
#include "support/native/dice.hpp"

namespace dlcp::ipstack {
namespace {

using test::Dice;

// One end that sends, one that receives, each knowing the other.
struct Ends {
    explicit Ends(bool is_v6, std::uint16_t vlan = 0, std::uint32_t mtu_bytes = 9000)
        : is_v6(is_v6), from(with(1, 2, is_v6, vlan, mtu_bytes)), to(with(2, 1, is_v6, vlan, mtu_bytes)) {
        destination = from.reach({0}, {to.config().address, 7000});
        REQUIRE(destination != nullptr);
        REQUIRE(destination->resolved);
        ip_offset = destination->ip_offset;
        udp_offset = destination->headers_bytes - udp_bytes;
    }
    static InterfaceConfig with(unsigned host, unsigned other, bool is_v6, std::uint16_t vlan, std::uint32_t mtu) {
        InterfaceConfig config = config_of_host(host, is_v6, vlan);
        const InterfaceConfig peer = config_of_host(other, is_v6);
        config.mtu_bytes = mtu;
        config.neighbours = {{peer.address, peer.mac}};
        return config;
    }
    Frame datagram(std::size_t payload_bytes = 100, Checksums checksums = Checksums::software) const {
        Frame payload(payload_bytes);
        for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::uint8_t>(37 * i + 11);
        return datagram_to(*destination, {.source_port = 50'000, .tos = 0x2a, .flow_label = 77}, payload,
                           checksums);
    }
    FrameKind read(const Frame& frame, CardChecksum ip = CardChecksum::unknown,
                   CardChecksum udp = CardChecksum::unknown) {
        held = Frame(frame);  // of its exact size, so that a sanitizer sees a byte too far
        return to.read(held, ip, udp, out);
    }
    // As if it had been sent so: IPv4's header checksum and UDP's are right again.
    void mend(Frame& frame) const {
        std::uint8_t* const ip = frame.data() + ip_offset;
        std::size_t header_bytes = ipv6_bytes;
        if (!is_v6) {
            header_bytes = (ip[0] & 15) * 4u;
            std::memset(ip + 10, 0, 2);
            const std::uint16_t sum = static_cast<std::uint16_t>(~fold(add_words(0, ip, header_bytes)));
            std::memcpy(ip + 10, &sum, 2);
        }
        std::uint8_t* const udp = ip + header_bytes;
        const std::uint32_t bytes = wire::load16(udp + 4);
        std::memset(udp + 6, 0, 2);
        const std::uint64_t pseudo =
            pseudo_header_sum(ip + (is_v6 ? 8 : 12), ip + (is_v6 ? 24 : 16), is_v6, protocol_udp, bytes);
        const std::uint16_t sum = static_cast<std::uint16_t>(~fold(add_words(pseudo, udp, bytes)));
        std::memcpy(udp + 6, &sum, 2);
    }

    bool is_v6;
    Interface from, to;
    const Destination* destination;
    std::size_t ip_offset, udp_offset;
    Frame held;
    Datagram out;  // points into `held`
};

}  // namespace

TEST_CASE("ipstack datagrams: what is written is read, for all fields, lengths and ways to check") {
    for (std::uint64_t seed = 1; seed <= 600; ++seed) {
        CAPTURE(seed);
        Dice dice(seed);
        const bool is_v6 = dice.chance(0.5);
        InterfaceConfig from = config_of_host(1, is_v6), to = config_of_host(2, is_v6);
        for (InterfaceConfig* config : {&from, &to}) {
            for (auto& byte : config->mac) byte = static_cast<std::uint8_t>(dice.word());
            config->mac[0] &= 0xfe;
            for (std::size_t i = 1; i < (is_v6 ? 16 : 4); ++i)
                config->address.bytes[i] = static_cast<std::uint8_t>(dice.between(1, 254));
            config->prefix_bits = 0;
            config->mtu_bytes = 9000;
        }
        from.vlan = to.vlan = static_cast<std::uint16_t>(dice.chance(0.5) ? dice.between(1, 4094) : 0);
        to.port = static_cast<std::uint16_t>(dice.between(1, 65535));
        from.neighbours = {{to.address, to.mac}};
        Interface sender(from), receiver(to);
        const Destination* const destination = sender.reach({0}, {to.address, to.port});
        REQUIRE(destination != nullptr);
        const Marking marking{.source_port = static_cast<std::uint16_t>(dice.word()),
                              .tos = static_cast<std::uint8_t>(dice.word()),
                              .flow_label = static_cast<std::uint32_t>(dice.below(1 << 20))};
        Frame payload(dice.chance(0.3) ? dice.below(40) : dice.below(8972 + 1));
        if (is_v6) payload.resize(std::min<std::size_t>(payload.size(), sender.max_datagram_bytes()));
        for (auto& byte : payload) byte = static_cast<std::uint8_t>(dice.word());
        const Checksums checksums = dice.pick({Checksums::software, Checksums::card, Checksums::none});
        Frame frame = datagram_to(*destination, marking, payload, checksums);
        // The padding of a short frame, or of a virtual link that rounds up.
        frame.resize(std::max<std::size_t>(frame.size() + dice.below(9), 60));

        const bool card = checksums == Checksums::card;
        const bool card_checks = dice.chance(0.3);
        Datagram out;
        REQUIRE(
            receiver.read(frame, card || card_checks ? CardChecksum::good : CardChecksum::unknown,
                          card_checks ? CardChecksum::good : dice.pick({CardChecksum::unknown, CardChecksum::bad}),
                          out) == FrameKind::datagram);
        REQUIRE(Frame(out.payload, out.payload + out.payload_bytes) == payload);
        REQUIRE(out.tos == marking.tos);
        REQUIRE(out.source == UdpAddress{from.address, marking.source_port});
        REQUIRE(out.destination_port == to.port);
        REQUIRE(receiver.counters().rx_partial_checksum_frames == (card && !card_checks ? 1 : 0));
        if (is_v6) REQUIRE((wire::load32(&frame[destination->ip_offset]) & 0xfffff) == marking.flow_label);
    }
}

TEST_CASE("ipstack datagrams: a path is its source port and its flow label") {
    Destination to[3];
    for (unsigned i = 0; i < 3; ++i) {
        const InterfaceConfig own = config_of_host(1, i > 0);
        prepare(to[i], {config_of_host(2 + i, i > 0).address, 7000}, own.address, own.mac, 0);
    }
    CHECK(marking_of_path(to[0], 65'534, 3, 0x2a).flow_label == 0);  // IPv4
    CHECK(marking_of_path(to[0], 65'534, 3, 0x2a).tos == 0x2a);
    CHECK(marking_of_path(to[0], 65'534, 3, 0x2a).source_port == 1025);
    std::set<std::uint32_t> labels;
    for (unsigned i = 1; i < 3; ++i)
        for (std::uint16_t path = 0; path < 64; ++path)
            labels.insert(marking_of_path(to[i], 7000, path, 0).flow_label);
    CHECK(labels.size() == 128);
    CHECK(*labels.begin() > 0);
    CHECK(*labels.rbegin() < 1 << 20);
}

TEST_CASE("ipstack datagrams: max_datagram_bytes fills the MTU") {
    for (const bool is_v6 : {false, true}) {
        Ends ends(is_v6, 7, 9000);
        CHECK(ends.from.max_datagram_bytes() == (is_v6 ? 8952 : 8972));
        const Frame frame = ends.datagram(ends.from.max_datagram_bytes());
        CHECK(frame.size() == 9000 + 18);
        CHECK(ends.read(frame) == FrameKind::datagram);
    }
    InterfaceConfig config = config_of_host(1, false);
    config.mtu_bytes = 20;
    CHECK(Interface(config).max_datagram_bytes() == 0);
    config.mtu_bytes = 1 << 20;
    CHECK(Interface(config).max_datagram_bytes() == 65535 - 28);
}

TEST_CASE("ipstack datagrams: what is longer than the MTU is refused, whole or cut") {
    for (const bool is_v6 : {false, true}) {
        CAPTURE(is_v6);
        Ends sender(is_v6), ends(is_v6, 0, 1500);
        const std::size_t largest = ends.to.max_datagram_bytes();
        CHECK(ends.read(sender.datagram(largest)) == FrameKind::datagram);
        Frame frame = sender.datagram(largest + 1);
        CHECK(ends.read(frame) == FrameKind::refused);
        frame.resize(1514);  // as a device gives it that has no room for more
        CHECK(ends.read(frame) == FrameKind::refused);
        CHECK(ends.to.counters().rx_oversized_frames == 2);
        CHECK(ends.to.counters().rx_malformed_frames == 0);
    }
}

TEST_CASE("ipstack datagrams: a bit that flips is refused, or changes nothing of the datagram") {
    for (const bool is_v6 : {false, true}) {
        for (const std::uint16_t vlan : {0, 42}) {
            Ends ends(is_v6, vlan);
            const Frame frame = ends.datagram(61);
            REQUIRE(ends.read(frame) == FrameKind::datagram);
            const Datagram meant = ends.out;
            const Frame payload(meant.payload, meant.payload + meant.payload_bytes);
            int taken = 0;
            for (std::size_t bit = 0; bit < 8 * frame.size(); ++bit) {
                CAPTURE(bit);
                Frame damaged = frame;
                damaged[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
                if (ends.to.read(damaged, CardChecksum::unknown, CardChecksum::unknown, ends.out) !=
                    FrameKind::datagram)
                    continue;
                ++taken;
                REQUIRE(ends.out.source == meant.source);
                REQUIRE(ends.out.destination_port == meant.destination_port);
                REQUIRE(Frame(ends.out.payload, ends.out.payload + ends.out.payload_bytes) == payload);
                // IPv6 has no header checksum: traffic class, flow label and hop limit may change.
                if (!is_v6) REQUIRE(ends.out.tos == meant.tos);
            }
            // The source's MAC, the tag's priority, and IPv6's unprotected fields (8 + 20 + 8 bits).
            CHECK(taken == 48 + (vlan != 0 ? 4 : 0) + (is_v6 ? 36 : 0));
        }
    }
}

TEST_CASE("ipstack datagrams: any start of a frame is read without leaving it") {
    for (const bool is_v6 : {false, true}) {
        Ends ends(is_v6, 9);
        const Frame frame = ends.datagram(20);
        for (std::size_t size = 0; size < frame.size(); ++size) {
            const Frame cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
            CAPTURE(size);
            CHECK(ends.read(cut) == FrameKind::refused);
        }
        CHECK(ends.read({}) == FrameKind::refused);
    }
}

TEST_CASE("ipstack datagrams: each reason to refuse has its counter") {
    for (const bool is_v6 : {false, true}) {
        CAPTURE(is_v6);
        Ends ends(is_v6);
        const InterfaceCounters& counters = ends.to.counters();
        const Frame good = ends.datagram();
        std::uint64_t expected = 0;
        // Refused for this reason and no other.
        const auto refused = [&](Frame frame, std::uint64_t InterfaceCounters::*reason, bool mended = true) {
            if (mended) ends.mend(frame);
            const std::uint64_t before = counters.*reason;
            CHECK(ends.read(frame) == FrameKind::refused);
            CHECK(counters.*reason == before + 1);
            ++expected;
        };
        const auto changed = [&](std::size_t at, std::uint8_t value) {
            Frame frame = good;
            frame[at] = value;
            return frame;
        };
        const std::size_t ip = ends.ip_offset, udp = ends.udp_offset;

        refused(changed(5, 9), &InterfaceCounters::rx_other_address_frames);  // to another MAC
        Frame broadcast = good;
        std::fill_n(broadcast.begin(), 6, std::uint8_t{0xff});
        refused(broadcast, &InterfaceCounters::rx_other_address_frames);
        refused(changed(udp - 1, 9), &InterfaceCounters::rx_other_address_frames);  // to another IP address
        refused(changed(udp + 2, 9), &InterfaceCounters::rx_other_port_frames);
        refused(changed(13, 0x07), &InterfaceCounters::rx_other_protocol_frames, false);
        Frame tagged = good;
        const std::uint8_t tag[] = {0x81, 0, 0, 5};
        tagged.insert(tagged.begin() + 12, tag, tag + 4);
        refused(tagged, &InterfaceCounters::rx_other_address_frames, false);
        tagged[15] = 0;  // a priority alone
        tagged[14] = 0xe0;
        CHECK(ends.read(tagged) == FrameKind::datagram);

        refused(changed(ip, 0x35), &InterfaceCounters::rx_malformed_frames, false);
        refused(changed(udp + 4, 0xff), &InterfaceCounters::rx_malformed_frames, false);
        Frame short_udp = good;
        wire::store16(&short_udp[udp + 4], 7);
        refused(short_udp, &InterfaceCounters::rx_malformed_frames, false);
        refused(changed(good.size() - 1, 0), &InterfaceCounters::rx_bad_checksum_frames, false);

        if (is_v6) {
            CHECK(ends.read(changed(ip + 6, 0)) == FrameKind::other);  // hop-by-hop options: maybe a query
            refused(changed(ip + 6, 44), &InterfaceCounters::rx_fragment_frames, false);
            refused(changed(ip + 4, 0x20), &InterfaceCounters::rx_malformed_frames, false);
            refused(changed(ip + 4, 0xff), &InterfaceCounters::rx_oversized_frames, false);
            refused(changed(ip + 8, 0xff), &InterfaceCounters::rx_malformed_frames);  // from a group
            Frame unchecked = good;
            std::memset(&unchecked[udp + 6], 0, 2);
            refused(unchecked, &InterfaceCounters::rx_bad_checksum_frames, false);
        } else {
            refused(changed(ip, 0x44), &InterfaceCounters::rx_malformed_frames, false);
            refused(changed(ip + 2, 0x20), &InterfaceCounters::rx_malformed_frames, false);
            refused(changed(ip + 2, 0xff), &InterfaceCounters::rx_oversized_frames, false);
            refused(changed(ip + 3, 19), &InterfaceCounters::rx_malformed_frames, false);
            refused(changed(ip + 8, 1), &InterfaceCounters::rx_bad_checksum_frames, false);  // the header's
            refused(changed(ip + 6, 0x20), &InterfaceCounters::rx_fragment_frames);          // more to come
            refused(changed(ip + 7, 1), &InterfaceCounters::rx_fragment_frames);             // not the first
            refused(changed(ip + 9, 6), &InterfaceCounters::rx_other_protocol_frames);
            refused(changed(ip + 12, 224), &InterfaceCounters::rx_malformed_frames);
            refused(changed(ip + 12, 0), &InterfaceCounters::rx_malformed_frames);
            refused(changed(ip + 12, 127), &InterfaceCounters::rx_malformed_frames);
        }
        // Of the other family.
        Ends other(!is_v6);
        refused(other.datagram(), &InterfaceCounters::rx_other_protocol_frames, false);

        std::uint64_t refusals = 0;
        for (const NamedCounter& counter : named(counters))
            if (std::string_view(counter.name) != "rx_datagrams") refusals += counter.value;
        CHECK(refusals == expected);
        CHECK(counters.rx_datagrams == 1);
        CHECK(ends.read(good) == FrameKind::datagram);
    }
}

TEST_CASE("ipstack datagrams: options of IPv4 are passed over") {
    Ends ends(false);
    Frame frame = ends.datagram();
    const std::uint8_t options[] = {1, 1, 1, 0, 7, 4, 4, 0};
    frame.insert(frame.begin() + 34, options, options + sizeof options);
    frame[14] = 0x47;
    wire::store16(&frame[16], static_cast<std::uint16_t>(wire::load16(&frame[16]) + sizeof options));
    ends.mend(frame);
    REQUIRE(ends.read(frame) == FrameKind::datagram);
    CHECK(ends.out.payload_bytes == 100);
    CHECK(ends.out.payload[0] == 11);
}

TEST_CASE("ipstack datagrams: what came before changes nothing of what is read") {
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        CAPTURE(seed);
        Dice dice(seed);
        const bool is_v6 = dice.chance(0.5);
        const auto vlan = static_cast<std::uint16_t>(dice.chance(0.5) ? dice.between(1, 4094) : 0);
        Ends ends(is_v6, vlan);
        const InterfaceConfig config = Ends::with(2, 1, is_v6, vlan, 9000);
        Frame last;
        int datagrams = 0;
        for (int i = 0; i < 40; ++i) {
            Frame payload(dice.chance(0.5) ? 100 : dice.below(2000));
            for (auto& byte : payload) byte = static_cast<std::uint8_t>(dice.word());
            Frame frame =
                datagram_to(*ends.destination,
                            {.source_port = static_cast<std::uint16_t>(50'000 + (dice.chance(0.2) ? 1 : 0)),
                             .tos = static_cast<std::uint8_t>(dice.word()),
                             .flow_label = static_cast<std::uint32_t>(dice.below(1 << 20))},
                            payload, dice.pick({Checksums::software, Checksums::card, Checksums::none}));
            if (dice.chance(0.1) && !last.empty()) frame = last;
            last = frame;
            const std::size_t headers_bytes = ends.destination->headers_bytes;
            for (int flips = dice.chance(0.4) ? 1 + static_cast<int>(dice.below(2)) : 0; flips > 0; --flips)
                frame[dice.below(headers_bytes)] ^= static_cast<std::uint8_t>(1 << dice.below(8));
            // As far as its lengths say where the checksums are.
            if (dice.chance(0.2) && (is_v6 || frame[ends.ip_offset] == 0x45) &&
                ends.udp_offset + wire::load16(&frame[ends.udp_offset + 4]) <= frame.size())
                ends.mend(frame);
            if (dice.chance(0.1)) frame.resize(dice.below(frame.size() + 1));
            if (dice.chance(0.2)) frame.resize(frame.size() + dice.below(9));
            const CardChecksum ip = dice.pick({CardChecksum::unknown, CardChecksum::bad, CardChecksum::good});
            const CardChecksum udp = dice.pick({CardChecksum::unknown, CardChecksum::bad, CardChecksum::good});

            Interface fresh(config);
            Datagram alone;
            const InterfaceCounters before = ends.to.counters();
            const FrameKind kind = ends.read(frame, ip, udp);
            REQUIRE(kind == fresh.read(ends.held, ip, udp, alone));
            const auto then = named(before), now = named(ends.to.counters()), once = named(fresh.counters());
            for (std::size_t at = 0; at < now.size(); ++at) {
                CAPTURE(now[at].name);
                REQUIRE(now[at].value - then[at].value == once[at].value);
            }
            if (kind != FrameKind::datagram) continue;
            ++datagrams;
            REQUIRE(ends.out.payload == alone.payload);
            REQUIRE(ends.out.payload_bytes == alone.payload_bytes);
            REQUIRE(ends.out.tos == alone.tos);
            REQUIRE(ends.out.source == alone.source);
            REQUIRE(ends.out.destination_port == alone.destination_port);
            REQUIRE(ends.out.source_mac == alone.source_mac);
        }
        REQUIRE(datagrams > 5);
    }
}

TEST_CASE("ipstack datagrams: checksums that a card vouches for are believed, bad ones looked at") {
    for (const bool is_v6 : {false, true}) {
        Ends ends(is_v6);
        Frame damaged = ends.datagram();
        damaged.back() ^= 1;
        CHECK(ends.read(damaged, CardChecksum::good, CardChecksum::good) == FrameKind::datagram);
        CHECK(ends.read(damaged, CardChecksum::good, CardChecksum::bad) == FrameKind::refused);
        CHECK(ends.read(ends.datagram(), CardChecksum::bad, CardChecksum::bad) == FrameKind::datagram);
        CHECK(ends.to.counters().rx_bad_checksum_frames == 1);
    }
}

TEST_CASE("ipstack datagrams: the ports of the first paths are ours, and no others") {
    Dice dice(1);
    for (int turn = 0; turn < 200; ++turn) {
        const auto port =
            static_cast<std::uint16_t>(turn % 2 == 0 ? 65535 - dice.below(40) : dice.between(1, 65535));
        const auto paths = static_cast<std::uint16_t>(dice.between(1, 300));
        CAPTURE(port);
        CAPTURE(paths);
        std::vector<bool> ours(65536);
        for (std::uint16_t path = 0; path < paths; ++path) {
            REQUIRE_FALSE(ours[path_port(port, path)]);
            ours[path_port(port, path)] = true;
        }
        bool same = true;
        for (std::uint32_t candidate = 0; candidate < 65536; ++candidate)
            same &= is_path_port(static_cast<std::uint16_t>(candidate), port, paths) == ours[candidate];
        REQUIRE(same);
    }
    InterfaceConfig config = config_of_host(2, false);
    config.port = 65535;
    config.ports = 2;
    Interface to(config);
    InterfaceConfig sender = config_of_host(1, false);
    sender.neighbours = {{config.address, config.mac}};
    Interface from(sender);
    const auto kind = [&](std::uint16_t port) {
        return receive(to, {0}, datagram_to(*from.reach({0}, {config.address, port}), {.source_port = 9}, {1}));
    };
    CHECK(kind(65535) == FrameKind::datagram);
    CHECK(kind(1024) == FrameKind::datagram);
    CHECK(kind(1025) == FrameKind::refused);
    CHECK(kind(65534) == FrameKind::refused);
    CHECK(to.counters().rx_other_port_frames == 2);
}

}  // namespace dlcp::ipstack
