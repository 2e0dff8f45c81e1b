// What the tests of ipstack share: an interface's frames as vectors, and the two ends that most of them have.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ipstack/arp.hpp"
#include "ipstack/checksum.hpp"
#include "ipstack/icmp.hpp"
#include "ipstack/interface.hpp"
#include "ipstack/mld.hpp"
#include "ipstack/ndp.hpp"

namespace dlcp::ipstack {

using Frame = std::vector<std::uint8_t>;

inline InterfaceConfig config_of_host(unsigned host, bool is_v6, std::uint16_t vlan = 0) {
    const std::string last = std::to_string(host);
    return {.mac = {2, 0, 0, 0, 0, static_cast<std::uint8_t>(host)},
            .address = *parse_ip((is_v6 ? "fd00::" : "10.0.0.") + last),
            .prefix_bits = is_v6 ? 64u : 24u,
            .vlan = vlan,
            .port = 7000};
}

inline Frame next_frame(Interface& interface) {
    Frame frame(interface.config().mtu_bytes + 18);
    frame.resize(interface.next_frame(frame));
    return frame;
}
inline std::vector<Frame> all_frames(Interface& interface) {
    std::vector<Frame> out;
    for (Frame frame = next_frame(interface); !frame.empty(); frame = next_frame(interface)) out.push_back(frame);
    return out;
}

// What a card gives its driver that listens to the interface's groups and to nothing else.
inline bool card_hears(const Interface& interface, const Frame& frame) {
    MacAddress to;
    std::copy_n(frame.begin(), to.size(), to.begin());
    const auto groups = interface.groups();
    return to == interface.config().mac || to == broadcast_mac ||
           std::find(groups.begin(), groups.end(), to) != groups.end();
}
// Untagged.
inline bool is_listener_report(const Frame& frame) {
    return frame.size() >= 78 && frame[12] == 0x86 && frame[13] == 0xdd && frame[20] == protocol_hop_by_hop &&
           (frame[62] == 131 || frame[62] == 143);
}

// As a driver does. Exact-size copies, so that a sanitizer sees a byte too far.
inline FrameKind receive(Interface& interface, Time now, const Frame& frame) {
    const Frame copy = frame;
    Datagram datagram;
    const FrameKind kind = interface.read(copy, CardChecksum::unknown, CardChecksum::unknown, datagram);
    if (kind == FrameKind::other) interface.handle_frame(now, copy);
    if (kind == FrameKind::datagram) interface.heard(now, datagram);
    return kind;
}

// A datagram as a driver sends it.
inline Frame datagram_to(const Destination& destination, const Marking& marking, const Frame& payload,
                         Checksums checksums = Checksums::software) {
    Frame frame(destination.headers_bytes + payload.size());
    std::copy(payload.begin(), payload.end(), frame.begin() + destination.headers_bytes);
    write_headers(destination, marking, static_cast<std::uint32_t>(payload.size()), checksums,
                  add_words(0, payload.data(), payload.size()), frame.data());
    return frame;
}

// A query for listeners in a frame of its own, from a router's link-local address.
inline Frame query_frame(const InterfaceConfig& from, const IpAddress& to, Frame message) {
    write_icmp_checksum(message, from.address, to);
    Frame frame(ethernet_bytes + ipv6_bytes + router_alert_bytes);
    std::uint32_t at = write_ethernet(multicast_mac(to), from.mac, 0, ethertype_ipv6, frame.data());
    at += write_ip({.source = from.address,
                    .destination = to,
                    .protocol = protocol_hop_by_hop,
                    .hop_limit = mld_hop_limit,
                    .payload_bytes = router_alert_bytes + static_cast<std::uint32_t>(message.size())},
                   frame.data() + at);
    write_router_alert(frame.data() + at);
    frame.insert(frame.end(), message.begin(), message.end());
    return frame;
}
// An ICMP or ICMPv6 message of `from`'s in a frame of its own, the checksum written.
inline Frame icmp_frame(const InterfaceConfig& from, const IpAddress& to, const MacAddress& to_mac, Frame message,
                        std::uint8_t hop_limit = 64) {
    const bool is_v6 = from.address.is_v6();
    write_icmp_checksum(message, from.address, to);
    Frame frame(54);
    std::uint32_t at = write_ethernet(to_mac, from.mac, 0, is_v6 ? ethertype_ipv6 : ethertype_ipv4, frame.data());
    at += write_ip({.source = from.address,
                    .destination = to,
                    .protocol = is_v6 ? protocol_icmpv6 : protocol_icmp,
                    .hop_limit = hop_limit,
                    .payload_bytes = static_cast<std::uint32_t>(message.size())},
                   frame.data() + at);
    frame.resize(at);
    frame.insert(frame.end(), message.begin(), message.end());
    return frame;
}
inline Frame neighbour_frame(const InterfaceConfig& from, const IpAddress& to, const MacAddress& to_mac,
                             const NeighbourMessage& message) {
    Frame bytes(neighbour_message_bytes);
    bytes.resize(write_neighbour_message(message, bytes.data()));
    return icmp_frame(from, to, to_mac, bytes, neighbour_hop_limit);
}
inline Frame arp_frame(const MacAddress& to, const ArpPacket& packet) {
    Frame frame(ethernet_bytes + arp_bytes);
    write_ethernet(to, packet.sender_mac, 0, ethertype_arp, frame.data());
    write_arp(packet, frame.data() + ethernet_bytes);
    return frame;
}

}  // namespace dlcp::ipstack
