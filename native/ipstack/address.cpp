// Parsing and formatting of MAC and IP addresses; which are groups, loopback or link-local.
#include "ipstack/address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace dlcp::ipstack {

namespace {

static_assert(sizeof(sockaddr_in) <= sizeof dlcp_address{}.bytes);
static_assert(sizeof(sockaddr_in6) <= sizeof dlcp_address{}.bytes);

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

}  // namespace

std::optional<IpAddress> parse_ip(std::string_view text) {
    // inet_pton wants an ending NUL; nothing longer than its own buffer can be an address.
    char buffer[INET6_ADDRSTRLEN];
    if (text.size() >= sizeof buffer || text.find('\0') != std::string_view::npos) return std::nullopt;
    std::copy(text.begin(), text.end(), buffer);
    buffer[text.size()] = '\0';
    IpAddress out;
    if (inet_pton(AF_INET, buffer, out.bytes.data()) == 1) {
        out.bits = 32;
        return out;
    }
    if (inet_pton(AF_INET6, buffer, out.bytes.data()) == 1) {
        out.bits = 128;
        return out;
    }
    return std::nullopt;
}

std::optional<MacAddress> parse_mac(std::string_view text) {
    MacAddress out;
    if (text.size() != 3 * out.size() - 1) return std::nullopt;
    for (std::size_t i = 0; i < out.size(); ++i) {
        const int high = hex_digit(text[3 * i]), low = hex_digit(text[3 * i + 1]);
        if (high < 0 || low < 0 || (i + 1 < out.size() && text[3 * i + 2] != ':')) return std::nullopt;
        out[i] = static_cast<std::uint8_t>(high << 4 | low);
    }
    return out;
}

std::string to_text(const IpAddress& address) {
    if (!address.present()) return "(no address)";
    char text[INET6_ADDRSTRLEN] = "";
    inet_ntop(address.is_v6() ? AF_INET6 : AF_INET, address.bytes.data(), text, sizeof text);
    return text;
}

std::string to_text(const MacAddress& address) {
    char text[18];
    std::snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", address[0], address[1], address[2],
                  address[3], address[4], address[5]);
    return text;
}

std::string to_text(const UdpAddress& address) {
    const std::string ip = to_text(address.ip);
    return (address.ip.is_v6() ? "[" + ip + "]" : ip) + ":" + std::to_string(address.port);
}

UdpAddress from_dlcp(const dlcp_address& address) {
    UdpAddress out;
    sa_family_t family;
    std::memcpy(&family, address.bytes + offsetof(sockaddr, sa_family), sizeof family);
    if (family == AF_INET && address.length == sizeof(sockaddr_in)) {
        sockaddr_in ipv4;
        std::memcpy(&ipv4, address.bytes, sizeof ipv4);
        std::memcpy(out.ip.bytes.data(), &ipv4.sin_addr, sizeof ipv4.sin_addr);
        out.ip.bits = 32;
        out.port = ntohs(ipv4.sin_port);
    } else if (family == AF_INET6 && address.length == sizeof(sockaddr_in6)) {
        sockaddr_in6 ipv6;
        std::memcpy(&ipv6, address.bytes, sizeof ipv6);
        std::memcpy(out.ip.bytes.data(), &ipv6.sin6_addr, sizeof ipv6.sin6_addr);
        out.ip.bits = 128;
        out.port = ntohs(ipv6.sin6_port);
    }
    return out;
}

dlcp_address to_dlcp(const UdpAddress& address) {
    dlcp_address out = {};
    if (address.ip.is_v6()) {
        sockaddr_in6 ipv6 = {};
        ipv6.sin6_family = AF_INET6;
        ipv6.sin6_port = htons(address.port);
        std::memcpy(&ipv6.sin6_addr, address.ip.bytes.data(), sizeof ipv6.sin6_addr);
        std::memcpy(out.bytes, &ipv6, sizeof ipv6);
        out.length = sizeof ipv6;
    } else if (address.ip.present()) {
        sockaddr_in ipv4 = {};
        ipv4.sin_family = AF_INET;
        ipv4.sin_port = htons(address.port);
        std::memcpy(&ipv4.sin_addr, address.ip.bytes.data(), sizeof ipv4.sin_addr);
        std::memcpy(out.bytes, &ipv4, sizeof ipv4);
        out.length = sizeof ipv4;
    }
    return out;
}

bool in_prefix(const IpAddress& address, const IpAddress& network, unsigned prefix_bits) {
    if (address.bits != network.bits || !address.present()) return false;
    prefix_bits = std::min<unsigned>(prefix_bits, address.bits);
    const unsigned whole = prefix_bits / 8, rest = prefix_bits % 8;
    if (!std::equal(address.bytes.begin(), address.bytes.begin() + whole, network.bytes.begin())) return false;
    return rest == 0 || (address.bytes[whole] ^ network.bytes[whole]) >> (8 - rest) == 0;
}

bool is_multicast(const IpAddress& address) {
    return address.is_v6() ? address.bytes[0] == 0xff : address.bits == 32 && address.bytes[0] >> 4 == 0xe;
}

bool is_unspecified(const IpAddress& address) { return address.bytes == IpAddress{}.bytes; }

bool is_link_local(const IpAddress& address) {
    return address.is_v6() && address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
}

bool is_station(const MacAddress& mac) { return (mac[0] & 1) == 0 && mac != MacAddress{}; }

IpAddress solicited_node(const IpAddress& address) {
    IpAddress out{.bytes = {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff}, .bits = 128};
    std::copy(address.bytes.begin() + 13, address.bytes.end(), out.bytes.begin() + 13);
    return out;
}

MacAddress multicast_mac(const IpAddress& group) {
    const auto& bytes = group.bytes;
    if (group.is_v6()) return {0x33, 0x33, bytes[12], bytes[13], bytes[14], bytes[15]};
    return {0x01, 0x00, 0x5e, static_cast<std::uint8_t>(bytes[1] & 0x7f), bytes[2], bytes[3]};
}

}  // namespace dlcp::ipstack
