// ARP for IPv4 over Ethernet (RFC 826): 28 bytes behind the Ethernet header.
//
//      0  1   2   3  4  5  6 7  8 … 13      14 … 17    18 … 23     24 … 27
//     hardware protocol 6  4  op  sender MAC  sender IP  target MAC  target IP
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "ipstack/address.hpp"

namespace dlcp::ipstack {

inline constexpr std::uint32_t arp_bytes = 28;

struct ArpPacket {
    enum class Operation : std::uint16_t { request = 1, reply = 2 };
    Operation operation = Operation::request;
    MacAddress sender_mac{};
    IpAddress sender_ip;
    MacAddress target_mac{};
    IpAddress target_ip;
};

// Nothing, if it is too short, of other hardware or protocol, or neither request nor reply.
std::optional<ArpPacket> parse_arp(std::span<const std::uint8_t> bytes);
void write_arp(const ArpPacket& packet, std::uint8_t* at);

}  // namespace dlcp::ipstack
