// ICMP and ICMPv6 messages: their checksums, and echo (RFC 792, RFC 4443, 4.1).
#pragma once

#include <cstdint>
#include <span>

#include "ipstack/network.hpp"

namespace dlcp::ipstack {

inline constexpr std::uint32_t icmp_bytes = 8;  // type, code, checksum, and four bytes that the type defines
inline constexpr std::uint8_t icmp_echo_request = 8, icmp_echo_reply = 0;
inline constexpr std::uint8_t icmpv6_echo_request = 128, icmpv6_echo_reply = 129;

// Whether the checksum of the message in an IP packet is right; the message has icmp_bytes at least.
bool icmp_checksum_holds(const NetworkPacket& packet);
// Writes the checksum of a whole message that goes between these addresses.
void write_icmp_checksum(std::span<std::uint8_t> message, const IpAddress& source, const IpAddress& destination);
// The answer to an echo request, request.size() bytes: the same identifier, number and payload. Its checksum stays 0.
void write_echo_reply(std::span<const std::uint8_t> request, bool is_v6, std::uint8_t* at);

}  // namespace dlcp::ipstack
