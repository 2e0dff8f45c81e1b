// Where an aggregation packet lies in an Ethernet frame, and its checksums: of the IPv4 header (RFC 791), and of UDP over
// pseudo header, header and all values (RFC 768), as p4/blocks/aggregation_parser.p4 and aggregation_checksum.p4 have them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "aggregation/packet.hpp"

namespace dlcp::switching::aggregation_frame {

using namespace aggregation;

// Ethernet (IEEE 802.3), IPv4 without options (RFC 791), UDP (RFC 768), ARP over Ethernet (RFC 826).
inline constexpr std::size_t ip_at = 14;
inline constexpr std::size_t ip_bytes = 20;
inline constexpr std::size_t udp_at = ip_at + ip_bytes;
inline constexpr std::size_t udp_bytes = 8;
inline constexpr std::size_t payload_at = udp_at + udp_bytes;
inline constexpr std::uint8_t protocol_udp = 17;
inline constexpr std::uint16_t type_ipv4 = 0x0800;
inline constexpr std::uint16_t type_arp = 0x0806;
inline constexpr std::size_t arp_bytes = 28;

inline void write48(std::uint8_t* p, std::uint64_t value) {
    write16(p, static_cast<std::uint32_t>(value >> 32));
    write32(p + 2, static_cast<std::uint32_t>(value));
}

// The one's complement sum of an even number of bytes (RFC 1071), unfolded, in the processor's order: the sum of swapped
// words is the swapped sum.
inline std::uint64_t sum_words(const std::uint8_t* p, std::size_t bytes) {
    std::uint64_t sum = 0;
    std::size_t i = 0;
    for (; i + 4 <= bytes; i += 4) {
        std::uint32_t word;
        std::memcpy(&word, p + i, sizeof word);
        sum += word;
    }
    if (i < bytes) {
        std::uint16_t word;
        std::memcpy(&word, p + i, sizeof word);
        sum += word;
    }
    return sum;
}

// The checksum of such a sum, as it is written.
inline std::uint16_t checksum_of(std::uint64_t sum) {
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    const auto folded = static_cast<std::uint16_t>(sum);
    const bool little = std::endian::native == std::endian::little;
    return static_cast<std::uint16_t>(~(little ? folded << 8 | folded >> 8 : folded));
}

inline std::uint64_t in_order(std::uint16_t value) {
    std::uint8_t bytes[2];
    write16(bytes, value);
    std::uint16_t word;
    std::memcpy(&word, bytes, sizeof word);
    return word;
}

// Of UDP with its pseudo header; the field itself counts as 0.
inline std::uint16_t udp_checksum(const std::uint8_t* frame, std::uint64_t payload_sum) {
    const std::uint8_t* udp = frame + udp_at;
    return checksum_of(payload_sum + sum_words(frame + ip_at + 12, 8) + in_order(protocol_udp) +
                       in_order(read16(udp + 4)) + sum_words(udp, 6));
}

inline void write_checksums(std::uint8_t* frame, std::uint64_t payload_sum) {
    std::uint8_t* ip = frame + ip_at;
    write16(ip + 10, 0);
    write16(ip + 10, checksum_of(sum_words(ip, ip_bytes)));
    write16(frame + udp_at + 6, udp_checksum(frame, payload_sum));
}

inline bool checksums_are_right(const std::uint8_t* frame, std::uint64_t payload_sum) {
    if (checksum_of(sum_words(frame + ip_at, ip_bytes)) != 0) return false;
    // 0: its sender computed none. 0xffff stands for a sum of 0, which the P4 target does not check.
    const std::uint16_t udp = read16(frame + udp_at + 6);
    return udp == 0 || udp == 0xffff || udp == udp_checksum(frame, payload_sum);
}

// The lanes of an aggregation packet in this frame; 0: it is none.
inline std::uint32_t lanes_of(std::span<const std::uint8_t> frame) {
    if (frame.size() < payload_at + packet_bytes(lane_unit)) return 0;
    const std::uint8_t* ip = frame.data() + ip_at;
    if (read16(&frame[12]) != type_ipv4 || ip[0] != 0x45 || ip[9] != protocol_udp) return 0;
    if ((read16(ip + 6) & 0x3fff) != 0) return 0;  // a fragment
    const std::size_t length = read16(&frame[udp_at + 4]);
    if (length < udp_bytes + header_bytes || read16(ip + 2) != ip_bytes + length) return 0;
    const std::size_t values = length - udp_bytes - header_bytes;
    const auto lanes = static_cast<std::uint32_t>(values / 4);
    if (values % 4 != 0 || !is_lane_count(lanes) || frame.size() < udp_at + length) return 0;
    const std::uint8_t* packet = frame.data() + payload_at;
    return read32(packet) == magic && packet[at_version] == version ? lanes : 0;
}

}  // namespace dlcp::switching::aggregation_frame
