// Addresses below the kernel: of a card, of a host, of a UDP endpoint, and as text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/packet.h"

namespace dlcp::ipstack {

using MacAddress = std::array<std::uint8_t, 6>;
inline constexpr MacAddress broadcast_mac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

// An IPv4 address lies in the first four bytes, in network order.
struct IpAddress {
    std::array<std::uint8_t, 16> bytes{};
    std::uint8_t bits = 0;  // 32 or 128; 0: no address

    bool present() const { return bits != 0; }
    bool is_v6() const { return bits == 128; }
    friend bool operator==(const IpAddress&, const IpAddress&) = default;
};

struct UdpAddress {
    IpAddress ip;
    std::uint16_t port = 0;
    friend bool operator==(const UdpAddress&, const UdpAddress&) = default;
};

// The source port of a path: the path-th after `port`, which is path 0's. Wraps within 1024 to 65535, since those below
// are the system's.
constexpr std::uint16_t path_port(std::uint16_t port, std::uint16_t path) {
    constexpr std::uint32_t first = 1024, ports = 65536 - first;
    if (port < first) return static_cast<std::uint16_t>(port + path);
    return static_cast<std::uint16_t>(first + (port - first + path) % ports);
}
// Whether it is that of one of the first `paths` paths.
constexpr bool is_path_port(std::uint16_t candidate, std::uint16_t port, std::uint16_t paths) {
    constexpr std::uint32_t ports = 65536 - 1024;
    const std::uint32_t path = candidate >= port ? std::uint32_t{candidate} - port : candidate + ports - port;
    return path < paths && path_port(port, static_cast<std::uint16_t>(path)) == candidate;
}

// "10.0.0.1", "fd00::1"; no names, no zones.
std::optional<IpAddress> parse_ip(std::string_view text);
// "aa:bb:cc:dd:ee:ff".
std::optional<MacAddress> parse_mac(std::string_view text);
std::string to_text(const IpAddress& address);
std::string to_text(const MacAddress& address);
std::string to_text(const UdpAddress& address);  // "10.0.0.1:7000", "[fd00::1]:7000"

// A dlcp_address as the UDP driver has it, a sockaddr whose unused bytes are zero, so that drivers can be mixed.
UdpAddress from_dlcp(const dlcp_address& address);
dlcp_address to_dlcp(const UdpAddress& address);

// Whether `address` is within the first `prefix_bits` of `network`.
bool in_prefix(const IpAddress& address, const IpAddress& network, unsigned prefix_bits);
bool is_multicast(const IpAddress& address);
bool is_unspecified(const IpAddress& address);
bool is_link_local(const IpAddress& address);  // fe80::/10 (RFC 4291, 2.5.6); IPv4's are as all others here
// Of one card: neither a group nor "none".
bool is_station(const MacAddress& mac);
// ff02::1:ffXX:XXXX of an IPv6 address (RFC 4291, 2.7.1), and the Ethernet address of a multicast group (RFC 1112,
// RFC 2464).
IpAddress solicited_node(const IpAddress& address);
MacAddress multicast_mac(const IpAddress& group);

}  // namespace dlcp::ipstack
