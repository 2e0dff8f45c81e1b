// Reads and writes ARP messages.
#include "ipstack/arp.hpp"

#include <cstring>

#include "engine/bytes.hpp"
#include "ipstack/headers.hpp"
#include "ipstack/network.hpp"

namespace dlcp::ipstack {

namespace {

constexpr std::uint16_t hardware_ethernet = 1;

}  // namespace

std::optional<ArpPacket> parse_arp(std::span<const std::uint8_t> bytes) {
    if (bytes.size() < arp_bytes) return std::nullopt;
    const std::uint8_t* const at = bytes.data();
    const std::uint16_t operation = wire::load16(at + 6);
    if (wire::load16(at) != hardware_ethernet || wire::load16(at + 2) != ethertype_ipv4 || at[4] != 6 ||
        at[5] != 4 || (operation != 1 && operation != 2))
        return std::nullopt;
    ArpPacket out;
    out.operation = static_cast<ArpPacket::Operation>(operation);
    std::memcpy(out.sender_mac.data(), at + 8, 6);
    out.sender_ip = ip_at(at + 14, false);
    std::memcpy(out.target_mac.data(), at + 18, 6);
    out.target_ip = ip_at(at + 24, false);
    return out;
}

void write_arp(const ArpPacket& packet, std::uint8_t* at) {
    wire::store16(at, hardware_ethernet);
    wire::store16(at + 2, ethertype_ipv4);
    at[4] = 6;
    at[5] = 4;
    wire::store16(at + 6, static_cast<std::uint16_t>(packet.operation));
    std::memcpy(at + 8, packet.sender_mac.data(), 6);
    std::memcpy(at + 14, packet.sender_ip.bytes.data(), 4);
    std::memcpy(at + 18, packet.target_mac.data(), 6);
    std::memcpy(at + 24, packet.target_ip.bytes.data(), 4);
}

}  // namespace dlcp::ipstack
