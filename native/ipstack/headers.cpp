// Writes prepared headers with the fields that differ per packet; reads headers off frames.
#include "ipstack/headers.hpp"

#include <algorithm>
#include <cstring>

#include "engine/bytes.hpp"
#include "ipstack/checksum.hpp"

namespace dlcp::ipstack {

namespace {

// Words as they lie in memory, as checksum.hpp sums them.
std::uint16_t memory_order(std::uint16_t value) { return __builtin_bswap16(value); }
void store(std::uint8_t* at, std::uint16_t word) { std::memcpy(at, &word, sizeof word); }

constexpr std::uint16_t dont_fragment = 0x4000;

// A copy of a length that the compiler knows: the length decides between four, which branch prediction learns.
void copy_headers(const Destination& destination, std::uint8_t* at) {
    const std::uint8_t* const from = destination.headers.data();
    switch (destination.headers_bytes) {
        case ethernet_bytes + ipv4_bytes + udp_bytes: std::memcpy(at, from, 42); break;
        case ethernet_bytes + vlan_bytes + ipv4_bytes + udp_bytes: std::memcpy(at, from, 46); break;
        case ethernet_bytes + ipv6_bytes + udp_bytes: std::memcpy(at, from, 62); break;
        case headers_bytes_max: std::memcpy(at, from, 66); break;
    }
}

}  // namespace

std::uint32_t write_ethernet(const MacAddress& to, const MacAddress& from, std::uint16_t vlan,
                             std::uint16_t ethertype, std::uint8_t* at) {
    std::memcpy(at, to.data(), to.size());
    std::memcpy(at + 6, from.data(), from.size());
    if (vlan == 0) {
        wire::store16(at + 12, ethertype);
        return ethernet_bytes;
    }
    wire::store16(at + 12, ethertype_vlan);
    wire::store16(at + 14, vlan);
    wire::store16(at + 16, ethertype);
    return ethernet_bytes + vlan_bytes;
}

std::uint32_t write_ip(const IpHeader& header, std::uint8_t* at) {
    if (header.source.is_v6()) {
        wire::store32(at, 6u << 28 | std::uint32_t{header.tos} << 20);
        wire::store16(at + 4, static_cast<std::uint16_t>(header.payload_bytes));
        at[6] = header.protocol;
        at[7] = header.hop_limit;
        std::memcpy(at + 8, header.source.bytes.data(), 16);
        std::memcpy(at + 24, header.destination.bytes.data(), 16);
        return ipv6_bytes;
    }
    at[0] = 0x45;
    at[1] = header.tos;
    wire::store16(at + 2, static_cast<std::uint16_t>(ipv4_bytes + header.payload_bytes));
    wire::store16(at + 4, 0);
    wire::store16(at + 6, dont_fragment);
    at[8] = header.hop_limit;
    at[9] = header.protocol;
    wire::store16(at + 10, 0);
    std::memcpy(at + 12, header.source.bytes.data(), 4);
    std::memcpy(at + 16, header.destination.bytes.data(), 4);
    store(at + 10, static_cast<std::uint16_t>(~fold(add_words(0, at, ipv4_bytes))));
    return ipv4_bytes;
}

std::uint64_t pseudo_header_sum(const std::uint8_t* source, const std::uint8_t* destination, bool is_v6,
                                std::uint8_t protocol, std::uint32_t payload_bytes) {
    const std::size_t bytes = is_v6 ? 16 : 4;
    // The length is 32 bits wide over IPv6 (RFC 8200, 8.1); all that it can be here fits 16.
    const std::uint64_t sum = memory_order(protocol) + memory_order(static_cast<std::uint16_t>(payload_bytes));
    return add_words(add_words(sum, source, bytes), destination, bytes);
}

void prepare(Destination& destination, const UdpAddress& to, const IpAddress& own_address,
             const MacAddress& own_mac, std::uint16_t vlan) {
    destination.address = to;
    destination.is_v6 = to.ip.is_v6();
    destination.resolved = false;
    std::uint8_t* const at = destination.headers.data();
    std::uint32_t offset =
        write_ethernet({}, own_mac, vlan, destination.is_v6 ? ethertype_ipv6 : ethertype_ipv4, at);
    destination.ip_offset = static_cast<std::uint8_t>(offset);
    offset += write_ip({.source = own_address, .destination = to.ip, .protocol = protocol_udp}, at + offset);
    if (!destination.is_v6) {
        wire::store16(at + destination.ip_offset + 2, 0);
        wire::store16(at + destination.ip_offset + 10, 0);
        destination.constant_sum = fold(add_words(0, at + destination.ip_offset, ipv4_bytes));
    }
    std::memset(at + offset, 0, udp_bytes);
    wire::store16(at + offset + 2, to.port);
    destination.headers_bytes = static_cast<std::uint8_t>(offset + udp_bytes);
    destination.pseudo_sum =
        fold(pseudo_header_sum(own_address.bytes.data(), to.ip.bytes.data(), destination.is_v6, protocol_udp, 0) +
             memory_order(to.port));
}

Marking marking_of_path(const Destination& destination, std::uint16_t port, std::uint16_t path, std::uint8_t tos) {
    const std::uint16_t source_port = path_port(port, path);
    Marking marking = {.source_port = source_port, .tos = tos, .flow_label = 0};
    if (!destination.is_v6) return marking;
    std::uint64_t words[2];
    std::memcpy(words, destination.address.ip.bytes.data(), sizeof words);
    // Multiplying carries what differs to the highest bits, which are taken.
    const std::uint64_t mixed = (words[0] ^ words[1] * 0x9e3779b97f4a7c15u) +
                                (std::uint64_t{destination.address.port} << 16 | source_port);
    marking.flow_label = std::max(static_cast<std::uint32_t>(mixed * 0xff51afd7ed558ccdu >> 44), 1u);
    return marking;
}

void write_headers(const Destination& destination, const Marking& marking, std::uint32_t payload_bytes,
                   Checksums checksums, std::uint64_t payload_sum, std::uint8_t* at) {
    copy_headers(destination, at);
    std::uint8_t* const ip = at + destination.ip_offset;
    std::uint8_t* const udp = at + destination.headers_bytes - udp_bytes;
    const std::uint16_t udp_length = memory_order(static_cast<std::uint16_t>(udp_bytes + payload_bytes));
    const std::uint16_t source_port = memory_order(marking.source_port);
    store(udp, source_port);
    store(udp + 4, udp_length);

    if (destination.is_v6) {
        wire::store32(ip, 6u << 28 | std::uint32_t{marking.tos} << 20 | (marking.flow_label & 0xfffff));
        store(ip + 4, udp_length);
    } else {
        const std::uint16_t total =
            memory_order(static_cast<std::uint16_t>(ipv4_bytes + udp_bytes + payload_bytes));
        ip[1] = marking.tos;
        store(ip + 2, total);
        if (checksums != Checksums::card) {
            const std::uint64_t sum = std::uint64_t{destination.constant_sum} + memory_order(marking.tos) + total;
            store(ip + 10, static_cast<std::uint16_t>(~fold(sum)));
        }
    }

    if (checksums == Checksums::card) {
        // Not complemented, and of the pseudo header alone: the destination's port, which is in the sum kept, is taken
        // out by its complement.
        std::uint16_t port;
        std::memcpy(&port, udp + 2, sizeof port);
        store(udp + 6,
              fold(std::uint64_t{destination.pseudo_sum} + static_cast<std::uint16_t>(~port) + udp_length));
    } else if (checksums == Checksums::software || destination.is_v6) {
        // The length counts twice: in the pseudo header and in the UDP header. 0 means "none", so 0xffff stands for it.
        const std::uint16_t sum =
            fold(payload_sum + destination.pseudo_sum + 2 * std::uint64_t{udp_length} + source_port);
        store(udp + 6, sum == 0xffff ? sum : static_cast<std::uint16_t>(~sum));
    }
}

}  // namespace dlcp::ipstack
