// A reader that compares a datagram with the one before says of every frame what one says that never saw another.
#include "engine/bytes.hpp"
#include "ipstack/datagram_reader.hpp"
#include "ipstack_support.hpp"
#include "support/native/dice.hpp"

namespace dlcp::ipstack {
namespace {

using test::Dice;

struct Sender {
    Sender(bool is_v6, std::uint16_t vlan)
        : config([&] {
              InterfaceConfig out = config_of_host(2, is_v6, vlan);
              out.neighbours = {{config_of_host(1, is_v6).address, config_of_host(1, is_v6).mac}};
              return out;
          }()),
          interface(config),
          to(*interface.reach({0}, {config_of_host(1, is_v6).address, 7000})) {}

    InterfaceConfig config;
    Interface interface;
    const Destination& to;
};

InterfaceConfig receiver_of(bool is_v6, std::uint16_t vlan) {
    InterfaceConfig config = config_of_host(1, is_v6, vlan);
    config.ports = 3;
    return config;
}

// Reads with a reader of its own, and compares: the answer, the datagram, the counters that it changed.
class Comparison {
public:
    explicit Comparison(const InterfaceConfig& config) : config_(config), reader_(config_, counters_) {}

    FrameKind read(const Frame& frame, CardChecksum ip, CardChecksum udp) {
        const Frame exact = frame;
        InterfaceCounters fresh_counters;
        DatagramReader fresh(config_, fresh_counters);
        Datagram expected, found;
        const FrameKind kind = fresh.read(exact, ip, udp, expected);
        const auto before = named(counters_);
        REQUIRE(reader_.read(exact, ip, udp, found) == kind);
        const auto after = named(counters_), alone = named(fresh_counters);
        for (std::size_t i = 0; i < after.size(); ++i) {
            CAPTURE(after[i].name);
            REQUIRE(after[i].value - before[i].value == alone[i].value);
        }
        if (kind != FrameKind::datagram) return kind;
        REQUIRE(found.payload == expected.payload);
        REQUIRE(found.payload_bytes == expected.payload_bytes);
        REQUIRE(found.tos == expected.tos);
        REQUIRE(found.source == expected.source);
        REQUIRE(found.destination_port == expected.destination_port);
        REQUIRE(found.source_mac == expected.source_mac);
        return kind;
    }

private:
    const InterfaceConfig config_;
    InterfaceCounters counters_;
    DatagramReader reader_;
};

void write_udp_checksum(Frame& frame, std::size_t ip, bool is_v6) {
    const std::size_t udp = ip + (is_v6 ? 40 : 20);
    const std::uint32_t bytes = wire::load16(&frame[udp + 4]);
    if (udp + bytes > frame.size()) return;
    std::fill_n(&frame[udp + 6], 2, std::uint8_t{0});
    const std::uint64_t pseudo = pseudo_header_sum(&frame[ip + (is_v6 ? 8 : 12)], &frame[ip + (is_v6 ? 24 : 16)],
                                                   is_v6, protocol_udp, bytes);
    const auto checksum = static_cast<std::uint16_t>(~fold(add_words(pseudo, &frame[udp], bytes)));
    std::memcpy(&frame[udp + 6], &checksum, 2);
}
void write_ip_checksum(Frame& frame, std::size_t ip) {
    std::fill_n(&frame[ip + 10], 2, std::uint8_t{0});
    const auto checksum = static_cast<std::uint16_t>(~fold(add_words(0, &frame[ip], 20)));
    std::memcpy(&frame[ip + 10], &checksum, 2);
}

}  // namespace

TEST_CASE("ipstack runs: whatever came before, a frame is read as if it were the first") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        Dice dice(seed);
        const bool is_v6 = dice.chance(0.5);
        const auto vlan = static_cast<std::uint16_t>(dice.chance(0.3) ? 42 : 0);
        const std::size_t ip = ethernet_bytes + (vlan != 0 ? vlan_bytes : 0);
        Sender sender(is_v6, vlan);
        Comparison comparison(receiver_of(is_v6, vlan));
        int datagrams = 0, others = 0;
        for (int i = 0; i < 400; ++i) {
            CAPTURE(i);
            const Marking marking{.source_port = static_cast<std::uint16_t>(7000 + dice.below(2)),
                                  .tos = static_cast<std::uint8_t>(dice.below(256)),
                                  .flow_label = static_cast<std::uint32_t>(dice.below(1 << 20))};
            const Frame payload(dice.pick<std::size_t>({0, 1, 2, 17, 18, 1400}),
                                static_cast<std::uint8_t>(dice.below(256)));
            const Checksums checksums = dice.pick({Checksums::software, Checksums::card, Checksums::none});
            Frame frame = datagram_to(sender.to, marking, payload, checksums);
            if (dice.chance(0.5)) frame.resize(std::max<std::size_t>(frame.size(), 60));
            // Half are as they should be; of the others a few bytes, mostly of the headers, are not.
            for (std::size_t changes = dice.chance(0.5) ? 0 : dice.between(1, 2); changes > 0; --changes) {
                const std::size_t end = dice.chance(0.9) ? ip + (is_v6 ? 48 : 28) : frame.size();
                frame[dice.below(end)] ^= static_cast<std::uint8_t>(1 << dice.below(8));
            }
            if (dice.chance(0.3)) write_udp_checksum(frame, ip, is_v6);
            if (!is_v6 && dice.chance(0.5)) write_ip_checksum(frame, ip);
            if (dice.chance(0.05)) frame.resize(dice.below(frame.size() + 1));
            const auto says = [&] {
                return dice.pick({CardChecksum::unknown, CardChecksum::good, CardChecksum::bad});
            };
            const CardChecksum card_ip = says(), card_udp = says();
            (comparison.read(frame, card_ip, card_udp) == FrameKind::datagram ? datagrams : others) += 1;
        }
        CHECK(datagrams > 40);
        CHECK(others > 40);
    }
}

TEST_CASE("ipstack runs: over IPv6 no checksum is none, even where the sum would hold") {
    Sender sender(true, 0);
    Comparison comparison(receiver_of(true, 0));
    Frame frame = datagram_to(sender.to, {.source_port = 7000}, {0, 0, 3, 4});
    REQUIRE(comparison.read(frame, CardChecksum::unknown, CardChecksum::unknown) == FrameKind::datagram);
    // The checksum moves into the payload: all sums to the same with 0 in its place.
    std::swap(frame[54 + 6], frame[54 + 8]);
    std::swap(frame[54 + 7], frame[54 + 9]);
    CHECK(comparison.read(frame, CardChecksum::unknown, CardChecksum::unknown) == FrameKind::refused);
    CHECK(comparison.read(frame, CardChecksum::unknown, CardChecksum::good) == FrameKind::refused);
}

}  // namespace dlcp::ipstack
