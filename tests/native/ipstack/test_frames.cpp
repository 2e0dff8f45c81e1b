// The frames that an interface writes, against tests/vectors/ipstack.txt, which scapy reads as meant
// (tests/transport/test_ipstack_vectors.py).
#include <functional>
#include <map>
#include <set>
#include <string>

#include "ipstack_support.hpp"
#include "support/native/vectors.hpp"

namespace dlcp::ipstack {
namespace {

InterfaceConfig config_of(const vectors::Record& record, bool is_v6) {
    return config_of_host(1, is_v6, static_cast<std::uint16_t>(record.has("vlan") ? record.number("vlan") : 0));
}
UdpAddress peer(bool is_v6) { return {config_of_host(2, is_v6).address, 7000}; }

void hear(Interface& interface, const Frame& frame) {
    Datagram datagram;
    REQUIRE(interface.read(frame, CardChecksum::unknown, CardChecksum::unknown, datagram) == FrameKind::other);
    interface.handle_frame({0}, frame);
}

// The frame that answers the one that is heard.
Frame answer(const vectors::Record& record, bool is_v6) {
    Interface interface(config_of(record, is_v6));
    hear(interface, record.bytes("heard"));
    return next_frame(interface);
}
Frame first_request(const vectors::Record& record, bool is_v6) {
    Interface interface(config_of(record, is_v6));
    REQUIRE(interface.reach({0}, peer(is_v6)) != nullptr);
    return next_frame(interface);
}
// What is asked of a neighbour that was silent for too long: who asked for us is known, and stale.
Frame request_to_one(const vectors::Record& record, bool is_v6) {
    InterfaceConfig other = config_of(record, is_v6);
    other.mac = config_of_host(2, is_v6).mac;
    other.address = peer(is_v6).ip;
    Interface asker(other);
    Interface interface(config_of(record, is_v6));
    REQUIRE(asker.reach({0}, {interface.config().address, 7000}) != nullptr);
    hear(interface, next_frame(asker));
    next_frame(interface);
    const Destination* const destination = interface.reach({0}, peer(is_v6));
    REQUIRE(destination != nullptr);
    REQUIRE(destination->resolved);
    interface.used({0}, *destination);
    interface.handle_timer(interface.next_deadline());
    return next_frame(interface);
}
Frame announcement(const vectors::Record& record, bool is_v6) {
    Interface interface(config_of(record, is_v6));
    interface.announce({0});
    return all_frames(interface).back();  // over IPv6 behind the report of its group
}
Frame probe(const vectors::Record& record, bool is_v6) {
    Interface interface(config_of(record, is_v6));
    interface.claim({0});
    return all_frames(interface).back();
}
Frame first_report(const vectors::Record& record, bool is_v6) {
    Interface interface(config_of(record, is_v6));
    interface.announce({0});
    return next_frame(interface);
}
// The report that answers the query that is heard.
Frame report(const vectors::Record& record, bool is_v6) {
    Interface interface(config_of(record, is_v6));
    hear(interface, record.bytes("heard"));
    interface.handle_timer(interface.next_deadline());
    return next_frame(interface);
}

Checksums checksums_of(const vectors::Record& record) {
    const std::string& name = record.text("checksums");
    if (name == "card") return Checksums::card;
    return name == "none" ? Checksums::none : Checksums::software;
}

Frame datagram(const vectors::Record& record, bool is_v6) {
    InterfaceConfig config = config_of(record, is_v6);
    config.neighbours = {{peer(is_v6).ip, config_of_host(2, is_v6).mac}};
    Interface interface(config);
    const Destination* const destination = interface.reach({0}, peer(is_v6));
    REQUIRE(destination != nullptr);
    REQUIRE(destination->resolved);
    const Marking marking{.source_port = static_cast<std::uint16_t>(record.number("source_port")),
                          .tos = static_cast<std::uint8_t>(record.number("tos")),
                          .flow_label = static_cast<std::uint32_t>(record.number("flow_label"))};
    return datagram_to(*destination, marking, record.bytes("payload"), checksums_of(record));
}

const std::map<std::string, std::function<Frame(const vectors::Record&, bool)>> makers{
    {"arp_request", first_request},
    {"arp_request_to_one", request_to_one},
    {"arp_reply", answer},
    {"arp_reply_to_probe", answer},
    {"arp_announcement", announcement},
    {"arp_probe", probe},
    {"arp_request_in_vlan", first_request},
    {"ndp_solicitation", first_request},
    {"ndp_solicitation_to_one", request_to_one},
    {"ndp_advertisement", answer},
    {"ndp_advertisement_to_probe", answer},
    {"ndp_announcement", announcement},
    {"ndp_probe", probe},
    {"mld_report", first_report},
    {"mld_report_in_vlan", first_report},
    {"mld_report_to_query", report},
    {"mld_report_to_query_v1", report},
    {"echo_v4", answer},
    {"echo_v6", answer},
};

}  // namespace

TEST_CASE("ipstack: frames are those of the golden vectors") {
    std::set<std::string> seen;
    int datagrams = 0;
    for (const auto& record : vectors::load("ipstack.txt")) {
        const std::string name = record.text("name");
        CAPTURE(name);
        const bool is_v6 =
            name.find("v6") != std::string::npos || name.substr(0, 4) == "ndp_" || name.substr(0, 4) == "mld_";
        Frame frame;
        if (name.substr(0, 4) == "udp_") {
            frame = datagram(record, is_v6);
            ++datagrams;
        } else {
            REQUIRE(makers.count(name) == 1);
            frame = makers.at(name)(record, is_v6);
            seen.insert(name);
        }
        CHECK(vectors::hex(frame.data(), frame.size()) == record.text("frame"));
    }
    CHECK(seen.size() == makers.size());
    CHECK(datagrams == 11);
}

TEST_CASE("ipstack: datagrams of the golden vectors are read back") {
    for (const auto& record : vectors::load("ipstack.txt")) {
        const std::string name = record.text("name");
        if (name.substr(0, 4) != "udp_") continue;
        CAPTURE(name);
        const bool is_v6 = name.find("v6") != std::string::npos;
        InterfaceConfig config = config_of(record, is_v6);
        const IpAddress sender = config.address;
        config.mac = config_of_host(2, is_v6).mac;
        config.address = peer(is_v6).ip;
        Interface interface(config);
        const Frame frame = record.bytes("frame");
        const Frame payload = record.bytes("payload");
        // What a card would have written is missing here: IPv4's checksum is not, UDP's is taken for what it is.
        const bool card = checksums_of(record) == Checksums::card;
        Datagram datagram;
        if (card && !is_v6) {
            CHECK(interface.read(frame, CardChecksum::unknown, CardChecksum::unknown, datagram) ==
                  FrameKind::refused);
            CHECK(interface.counters().rx_bad_checksum_frames == 1);
        }
        REQUIRE(interface.read(frame, card ? CardChecksum::good : CardChecksum::unknown, CardChecksum::unknown,
                               datagram) == FrameKind::datagram);
        CHECK(interface.counters().rx_partial_checksum_frames == (card ? 1 : 0));
        CHECK(interface.counters().rx_datagrams == 1);
        CHECK(Frame(datagram.payload, datagram.payload + datagram.payload_bytes) == payload);
        CHECK(datagram.tos == record.number("tos"));
        CHECK(datagram.source == UdpAddress{sender, static_cast<std::uint16_t>(record.number("source_port"))});
        CHECK(datagram.destination_port == 7000);
        CHECK(datagram.source_mac == frame.data() + 6);
    }
}

}  // namespace dlcp::ipstack
