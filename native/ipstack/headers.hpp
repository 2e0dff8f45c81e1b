// Ethernet, IP and UDP headers: written once per packet in front of a payload, and read off a frame.
//
// What is the same for all packets to one UDP endpoint is kept ready in a Destination, so that a packet costs a copy of
// it and what differs: source port, TOS, flow label, lengths, checksums.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "ipstack/address.hpp"

namespace dlcp::ipstack {

inline constexpr std::uint32_t ethernet_bytes = 14;
inline constexpr std::uint32_t vlan_bytes = 4;
inline constexpr std::uint32_t ipv4_bytes = 20;
inline constexpr std::uint32_t ipv6_bytes = 40;
inline constexpr std::uint32_t udp_bytes = 8;
inline constexpr std::uint32_t headers_bytes_max = ethernet_bytes + vlan_bytes + ipv6_bytes + udp_bytes;

inline constexpr std::uint16_t ethertype_ipv4 = 0x0800;
inline constexpr std::uint16_t ethertype_arp = 0x0806;
inline constexpr std::uint16_t ethertype_vlan = 0x8100;
inline constexpr std::uint16_t ethertype_ipv6 = 0x86dd;
inline constexpr std::uint8_t protocol_icmp = 1;
inline constexpr std::uint8_t protocol_udp = 17;
inline constexpr std::uint8_t protocol_ipv6_fragment = 44;
inline constexpr std::uint8_t protocol_icmpv6 = 58;
inline constexpr std::uint8_t default_hop_limit = 64;

// ---- one header ----

// Ethernet, with a tag of `vlan` unless that is 0. Answers the bytes written: 14 or 18.
std::uint32_t write_ethernet(const MacAddress& to, const MacAddress& from, std::uint16_t vlan,
                             std::uint16_t ethertype, std::uint8_t* at);
// What an IP header says. Both kinds are written without options.
struct IpHeader {
    IpAddress source, destination;
    std::uint8_t protocol = 0;
    std::uint8_t hop_limit = default_hop_limit;
    std::uint8_t tos = 0;
    std::uint32_t payload_bytes = 0;
};
// Answers the bytes written: 20 or 40. IPv4: not to be fragmented, identification 0 (RFC 6864), with its checksum.
std::uint32_t write_ip(const IpHeader& header, std::uint8_t* at);
// The pseudo header of the two addresses (4 or 16 bytes each), for add_words' sums.
std::uint64_t pseudo_header_sum(const std::uint8_t* source, const std::uint8_t* destination, bool is_v6,
                                std::uint8_t protocol, std::uint32_t payload_bytes);

// ---- all headers of a datagram ----

// Who writes which checksum of a datagram that leaves.
enum class Checksums : std::uint8_t {
    software,  // both are written here; the payload's sum is given
    card,      // the card's: IPv4's is left 0, UDP's field holds the pseudo header's sum
    none,  // IPv4's is written here, UDP's field is 0, "not computed" (RFC 768); IPv6 has no such thing: as software
};

// A UDP endpoint as one interface reaches it. Made and kept by Interface, at a place that never changes.
struct Destination {
    alignas(64) std::array<std::uint8_t, headers_bytes_max> headers{};
    std::uint8_t headers_bytes = 0;
    std::uint8_t ip_offset = 0;
    bool is_v6 = false;
    bool resolved = false;           // the next hop's Ethernet address is in `headers`
    std::uint16_t constant_sum = 0;  // IPv4 header without length, TOS, checksum; folded, memory order
    std::uint16_t pseudo_sum = 0;    // pseudo header without length, and destination port; folded, memory order
    std::uint32_t next_hop = 0;      // index of the neighbour
    UdpAddress address;
};

// Fills all of a destination but `next_hop`; not resolved yet. Both addresses are of one family.
void prepare(Destination& destination, const UdpAddress& to, const IpAddress& own_address,
             const MacAddress& own_mac, std::uint16_t vlan);

// What differs from packet to packet.
struct Marking {
    std::uint16_t source_port = 0;
    std::uint8_t tos = 0;          // DSCP << 2 | ECN
    std::uint32_t flow_label = 0;  // 20 bits; IPv6 only
};

// Source port and flow label of a path, for an interface whose path 0 leaves from `port`. The label differs by path and
// destination and is never 0, "none", so that routers which hash it instead of ports spread paths (RFC 6438).
Marking marking_of_path(const Destination& destination, std::uint16_t port, std::uint16_t path, std::uint8_t tos);

// Writes destination.headers_bytes of headers to `at`; payload_bytes follow there. `payload_sum`: add_words over the
// payload, if `checksums` is software (or none and the destination is IPv6); else it is not looked at.
void write_headers(const Destination& destination, const Marking& marking, std::uint32_t payload_bytes,
                   Checksums checksums, std::uint64_t payload_sum, std::uint8_t* at);

// A UDP datagram in a frame; pointers into it.
struct Datagram {
    const std::uint8_t* payload = nullptr;
    std::uint32_t payload_bytes = 0;
    std::uint8_t tos = 0;
    UdpAddress source;
    std::uint16_t destination_port = 0;
    const std::uint8_t* source_mac = nullptr;
};

}  // namespace dlcp::ipstack
