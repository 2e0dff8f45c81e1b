// What a switch reads of an Ethernet frame, and what it may write: a mark, or a cut that leaves the dlcp header.
//
// Pure functions over the frame's bytes; P4's parser, marking and trimming do the same, held to it by
// tests/vectors/switch_frames.txt. Invariant: nothing outside `frame` is read, nothing but the bytes named here is
// written. It does not know queues, ports or ways.
//
// What is read:
//   - IPv4 without options and IPv6, directly behind an untagged Ethernet header. Anything else is foreign.
//   - An IPv4 header whose checksum is wrong, or a length in an IP or UDP header that the frame does not hold: malformed.
//   - Ports: of UDP and TCP directly behind the IP header, not of fragments; else 0.
//   - dlcp: UDP, at least the 64 bytes of the long header of engine/wire.hpp, version 2, type 1 to 4, and with a long
//     header the UDP length is that of header, payload and tag (of a trimmed packet: at most). So another program's packet
//     is not cut by mistake. A short header (type 4) states no length; its version, type and DSCP must do.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "switch/decision.hpp"

namespace dlcp::switching {

inline constexpr std::uint8_t foreign_dscp = 0xff;  // in `class_of_dscp`: of no class
// Of a Not-ECT packet that says nothing of its importance: dropped after all droppable ones that do.
inline constexpr std::uint8_t unknown_importance = 254;

// Who goes into which class: the policy's DSCP values.
struct Classification {
    std::array<std::uint8_t, 64> class_of_dscp;  // 0..7, or foreign_dscp
    std::uint8_t foreign_class = 0;              // whose queue foreign traffic joins
    std::uint8_t trimmed_dscp = foreign_dscp;    // written into trimmed packets; foreign_dscp: left as it is

    Classification() { class_of_dscp.fill(foreign_dscp); }
};

enum class FrameKind : std::uint8_t {
    malformed,  // an IP packet that no host would take: dropped and counted
    other,      // not IP, or IP that is not read (tags, options): foreign
    ipv4,
    ipv6,
};

// A frame, read. Offsets are from its first byte.
struct Frame {
    FrameKind kind = FrameKind::other;
    std::uint8_t dscp = 0;
    std::uint8_t ecn = 0;              // 0 Not-ECT, 3 CE
    std::uint16_t network_offset = 0;  // of the IP header
    std::uint16_t dlcp_offset = 0;     // of the dlcp header; 0: not a dlcp packet
    std::uint16_t path = 0;            // path id of a dlcp packet; 0 of others
    // CRC-32 (IEEE 802.3, as in zlib) of what all packets of a flow in one direction have in common. IP: source address,
    // destination address, protocol or next header, source port, destination port, as on the wire. Other frames: destination
    // and source MAC address, type.
    std::uint32_t flow = 0;
    // Class by DSCP; critical if ECN-capable; importance of dlcp data, else unknown_importance.
    PacketHeaders headers;
};

// Reads a frame: 14 bytes of Ethernet header at least, no frame check sequence. What is shorter is malformed.
Frame read_frame(std::span<const std::uint8_t> frame, const Classification& classification);

// Sets CE, and IPv4's header checksum by difference (RFC 1624). Only IP frames that are ECN-capable.
void mark(std::span<std::uint8_t> bytes, const Frame& frame);

// What trim() leaves: everything up to the end of a long dlcp header, so 106 bytes over IPv4 and 126 over IPv6.
std::uint32_t trimmed_bytes(const Frame& frame);

// Cuts a trimmable frame where a long dlcp header ends and answers the bytes left: flag `trimmed` set in it, DSCP of trimmed
// packets, lengths and checksums of IP and UDP as they then are (UDP over IPv4 without: RFC 768; over IPv6 computed).
std::size_t trim(std::span<std::uint8_t> bytes, const Frame& frame, const Classification& classification);

}  // namespace dlcp::switching
