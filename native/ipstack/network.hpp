// The Ethernet and IP headers of a frame that came in, checked and taken apart: the part that datagrams, echo and
// neighbour discovery share.
//
// Frames are hostile: nothing outside `frame` is read, and every length is held against what is there. What lies behind
// the IP length is padding and no longer seen. Whether a packet is for us is not asked here.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#include "engine/bytes.hpp"
#include "ipstack/checksum.hpp"
#include "ipstack/headers.hpp"

namespace dlcp::ipstack {

enum class NetworkKind : std::uint8_t {
    ip,
    arp,             // `payload` is what follows the Ethernet header
    malformed,       // a length or version that cannot be
    oversized,       // says that it is longer than the MTU, however much of it is here
    other_vlan,      // tagged otherwise than this interface
    other_protocol,  // neither IP nor ARP
    fragment,
    bad_checksum,  // of the IPv4 header
};

struct NetworkPacket {
    const std::uint8_t* source = nullptr;  // 4 or 16 bytes
    const std::uint8_t* destination = nullptr;
    const std::uint8_t* payload = nullptr;  // behind the IP header and its options
    std::uint32_t payload_bytes = 0;
    bool is_v6 = false;
    std::uint8_t tos = 0;
    std::uint8_t protocol = 0;  // IPv6: next header; extension headers are not followed
    std::uint8_t hop_limit = 0;
};

// In eight bytes at a time, as addresses are compared: a load that spans several stores waits for them to reach the
// cache, some 20 cycles in each packet received.
inline void read_ip(const std::uint8_t* bytes, bool is_v6, IpAddress& out) {
    std::uint64_t first = 0, second = 0;
    if (is_v6) {
        std::memcpy(&first, bytes, 8);
        std::memcpy(&second, bytes + 8, 8);
    } else {
        std::uint32_t word;
        std::memcpy(&word, bytes, sizeof word);
        first = std::endian::native == std::endian::little ? word : std::uint64_t{word} << 32;
    }
    std::memcpy(out.bytes.data(), &first, 8);
    std::memcpy(out.bytes.data() + 8, &second, 8);
    out.bits = is_v6 ? 128 : 32;
}

inline IpAddress ip_at(const std::uint8_t* bytes, bool is_v6) {
    IpAddress out;
    read_ip(bytes, is_v6, out);
    return out;
}

// The tag must be `vlan`; 0 takes what is not tagged, or with a priority only (IEEE 802.1Q: VID 0). `header_is_good`:
// somebody has verified IPv4's header checksum.
//
// What is longer than the MTU is refused even if all of it is here: it may be several datagrams in one, which their
// sender has left to a card to cut up.
inline NetworkKind read_network(std::span<const std::uint8_t> frame, std::uint16_t vlan, std::uint32_t mtu_bytes,
                                bool header_is_good, NetworkPacket& out) {
    const std::uint8_t* at = frame.data();
    if (frame.size() < ethernet_bytes) return NetworkKind::malformed;
    std::size_t bytes = frame.size() - ethernet_bytes;
    std::uint16_t ethertype = wire::load16(at + 12);
    std::uint16_t tag = 0;
    at += ethernet_bytes;
    if (ethertype == ethertype_vlan) {
        if (bytes < vlan_bytes) return NetworkKind::malformed;
        tag = wire::load16(at) & 0xfff;
        ethertype = wire::load16(at + 2);
        at += vlan_bytes;
        bytes -= vlan_bytes;
    }
    if (tag != vlan) return NetworkKind::other_vlan;

    if (ethertype == ethertype_ipv4) {
        if (bytes < ipv4_bytes || at[0] >> 4 != 4) return NetworkKind::malformed;
        const std::uint32_t header_bytes = (at[0] & 15) * 4u;
        const std::uint32_t total_bytes = wire::load16(at + 2);
        if (header_bytes < ipv4_bytes || total_bytes < header_bytes) return NetworkKind::malformed;
        if (total_bytes > mtu_bytes) return NetworkKind::oversized;
        if (total_bytes > bytes) return NetworkKind::malformed;
        if (!header_is_good && fold(add_words(0, at, header_bytes)) != 0xffff) return NetworkKind::bad_checksum;
        // More fragments, or an offset.
        if ((wire::load16(at + 6) & 0x3fff) != 0) return NetworkKind::fragment;
        out.source = at + 12;
        out.destination = at + 16;
        out.payload = at + header_bytes;
        out.payload_bytes = total_bytes - header_bytes;
        out.is_v6 = false;
        out.tos = at[1];
        out.protocol = at[9];
        out.hop_limit = at[8];
        return NetworkKind::ip;
    }
    if (ethertype == ethertype_ipv6) {
        if (bytes < ipv6_bytes || at[0] >> 4 != 6) return NetworkKind::malformed;
        const std::uint32_t payload_bytes = wire::load16(at + 4);
        if (ipv6_bytes + payload_bytes > mtu_bytes) return NetworkKind::oversized;
        if (payload_bytes > bytes - ipv6_bytes) return NetworkKind::malformed;
        if (at[6] == protocol_ipv6_fragment) return NetworkKind::fragment;
        out.source = at + 8;
        out.destination = at + 24;
        out.payload = at + ipv6_bytes;
        out.payload_bytes = payload_bytes;
        out.is_v6 = true;
        out.tos = static_cast<std::uint8_t>(wire::load16(at) >> 4);
        out.protocol = at[6];
        out.hop_limit = at[7];
        return NetworkKind::ip;
    }
    if (ethertype == ethertype_arp) {
        out.payload = at;
        out.payload_bytes = static_cast<std::uint32_t>(bytes);
        return NetworkKind::arp;
    }
    return NetworkKind::other_protocol;
}

}  // namespace dlcp::ipstack
