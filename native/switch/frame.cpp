#include "switch/frame.hpp"

namespace dlcp::switching {
namespace {

// Sizes and places: Ethernet (IEEE 802.3), IPv4 (RFC 791), IPv6 (RFC 8200), UDP (RFC 768), dlcp (engine/wire.hpp,
// which this room may not use: a switch knows the packet from the outside, as the P4 parser does).
constexpr std::size_t ethernet_bytes = 14;
constexpr std::size_t ipv4_bytes = 20;
constexpr std::size_t ipv6_bytes = 40;
constexpr std::size_t udp_bytes = 8;
constexpr std::size_t dlcp_bytes = 64;
constexpr std::size_t dlcp_tag_bytes = 16;
constexpr std::uint16_t type_ipv4 = 0x0800;
constexpr std::uint16_t type_ipv6 = 0x86dd;
constexpr std::uint8_t protocol_tcp = 6;
constexpr std::uint8_t protocol_udp = 17;
constexpr std::uint8_t dlcp_version = 2;
constexpr std::uint8_t dlcp_data = 1;
constexpr std::uint8_t dlcp_hello = 3;
constexpr std::uint8_t dlcp_short_data = 4;
constexpr std::uint8_t flag_authenticated = 1u << 1;
constexpr std::uint8_t flag_trimmed = 1u << 7;
constexpr std::uint8_t ecn_ce = 3;  // RFC 3168, 5

std::uint16_t read16(const std::uint8_t* p) { return static_cast<std::uint16_t>(p[0] << 8 | p[1]); }

void write16(std::uint8_t* p, std::uint32_t value) {
    p[0] = static_cast<std::uint8_t>(value >> 8);
    p[1] = static_cast<std::uint8_t>(value);
}

// One's complement sum of 16-bit words (RFC 1071); an odd last byte counts as if a zero followed.
std::uint32_t sum_words(std::span<const std::uint8_t> bytes, std::uint32_t sum) {
    std::size_t i = 0;
    for (; i + 1 < bytes.size(); i += 2) sum += read16(bytes.data() + i);
    if (i < bytes.size()) sum += std::uint32_t{bytes[i]} << 8;
    return sum;
}

std::uint16_t fold(std::uint32_t sum) {
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(sum);
}

// Four tables, so that four bytes are taken at once: reading a frame is mostly this sum.
struct Crc32 {
    std::array<std::array<std::uint32_t, 256>, 4> table{};

    constexpr Crc32() {
        for (std::uint32_t i = 0; i < 256; ++i) {
            std::uint32_t c = i;
            for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? 0xedb88320U ^ c >> 1 : c >> 1;
            table[0][i] = c;
        }
        for (std::uint32_t i = 0; i < 256; ++i) {
            for (std::size_t t = 1; t < 4; ++t) {
                table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 0xff];
            }
        }
    }

    std::uint32_t operator()(std::span<const std::uint8_t> bytes) const {
        std::uint32_t c = 0xffffffffU;
        std::size_t i = 0;
        for (; i + 4 <= bytes.size(); i += 4) {
            c ^= std::uint32_t{bytes[i]} | std::uint32_t{bytes[i + 1]} << 8 | std::uint32_t{bytes[i + 2]} << 16 |
                 std::uint32_t{bytes[i + 3]} << 24;
            c = table[3][c & 0xff] ^ table[2][c >> 8 & 0xff] ^ table[1][c >> 16 & 0xff] ^ table[0][c >> 24];
        }
        for (; i < bytes.size(); ++i) c = table[0][(c ^ bytes[i]) & 0xff] ^ c >> 8;
        return ~c;
    }
};

constexpr Crc32 crc32;

// The addresses, protocol and ports of an IP packet in the order in which they are summed.
std::uint32_t flow_of(std::span<const std::uint8_t> addresses, std::uint8_t protocol, const std::uint8_t* ports) {
    std::array<std::uint8_t, 37> bytes{};
    std::size_t size = addresses.size();
    for (std::size_t i = 0; i < size; ++i) bytes[i] = addresses[i];
    bytes[size++] = protocol;
    for (std::size_t i = 0; i < 4; ++i) bytes[size++] = ports != nullptr ? ports[i] : 0;
    return crc32({bytes.data(), size});
}

// Whether a UDP payload is one of dlcp's packets; with a long header, by its own account of its length.
bool is_dlcp(std::span<const std::uint8_t> payload) {
    if (payload.size() < dlcp_bytes || payload[0] != dlcp_version) return false;
    if (payload[1] == dlcp_short_data) return true;
    if (payload[1] < dlcp_data || payload[1] > dlcp_hello) return false;
    const std::uint8_t flags = payload[2];
    const std::size_t whole =
        dlcp_bytes + read16(&payload[58]) + ((flags & flag_authenticated) != 0 ? dlcp_tag_bytes : 0);
    return (flags & flag_trimmed) != 0 ? payload.size() <= whole : payload.size() == whole;
}

void read_dlcp(std::span<const std::uint8_t> packet, Frame& out) {
    out.path = read16(&packet[6]);
    const bool is_short = packet[1] == dlcp_short_data;
    if (packet[1] != dlcp_data && !is_short) return;
    out.headers.importance = packet[4];
    const bool has_more = is_short ? packet.size() > dlcp_bytes : read16(&packet[58]) != 0;
    out.headers.trimmable = has_more && (packet[2] & flag_trimmed) == 0;
}

// What is behind an IP header. `payload` is what the IP header says there is; false: malformed.
bool read_transport(std::span<const std::uint8_t> frame, std::span<const std::uint8_t> payload,
                    std::span<const std::uint8_t> addresses, std::uint8_t protocol, bool fragment, Frame& out) {
    const std::uint8_t* ports = nullptr;
    if (!fragment && protocol == protocol_udp) {
        if (payload.size() < udp_bytes) return false;
        const std::size_t length = read16(&payload[4]);
        if (length < udp_bytes || length > payload.size()) return false;
        ports = payload.data();
        const auto content = payload.subspan(udp_bytes, length - udp_bytes);
        if (is_dlcp(content)) {
            out.dlcp_offset = static_cast<std::uint16_t>(content.data() - frame.data());
            read_dlcp(content, out);
        }
    } else if (!fragment && protocol == protocol_tcp && payload.size() >= 4) {
        ports = payload.data();
    }
    out.flow = flow_of(addresses, protocol, ports);
    return true;
}

// False: malformed. What has options stays `other`.
bool read_ipv4(std::span<const std::uint8_t> frame, Frame& out) {
    const auto ip = frame.subspan(ethernet_bytes);
    if (ip.size() < ipv4_bytes) return false;
    if (ip[0] != 0x45) return true;
    const std::size_t length = read16(&ip[2]);
    if (length < ipv4_bytes || length > ip.size()) return false;
    if (fold(sum_words(ip.first(ipv4_bytes), 0)) != 0xffff) return false;
    out.kind = FrameKind::ipv4;
    out.dscp = ip[1] >> 2;
    out.ecn = ip[1] & 3;
    const bool fragment = (read16(&ip[6]) & 0x3fff) != 0;  // an offset, or more to come
    return read_transport(frame, ip.subspan(ipv4_bytes, length - ipv4_bytes), ip.subspan(12, 8), ip[9], fragment,
                          out);
}

bool read_ipv6(std::span<const std::uint8_t> frame, Frame& out) {
    const auto ip = frame.subspan(ethernet_bytes);
    if (ip.size() < ipv6_bytes) return false;
    if (ip[0] >> 4 != 6) return true;
    const std::size_t length = read16(&ip[4]);
    if (length > ip.size() - ipv6_bytes) return false;
    out.kind = FrameKind::ipv6;
    out.dscp = static_cast<std::uint8_t>((ip[0] & 15) << 2 | ip[1] >> 6);
    out.ecn = ip[1] >> 4 & 3;
    return read_transport(frame, ip.subspan(ipv6_bytes, length), ip.subspan(8, 32), ip[6], false, out);
}

// IPv4's header checksum after one of its 16-bit words has changed (RFC 1624, equation 3).
void update_checksum(std::uint8_t* ip, std::uint16_t before, std::uint16_t after) {
    const std::uint32_t sum =
        (~std::uint32_t{read16(ip + 10)} & 0xffff) + (~std::uint32_t{before} & 0xffff) + after;
    write16(ip + 10, ~std::uint32_t{fold(sum)});
}

void write_ipv4_word(std::uint8_t* ip, std::size_t offset, std::uint16_t value) {
    update_checksum(ip, read16(ip + offset), value);
    write16(ip + offset, value);
}

}  // namespace

Frame read_frame(std::span<const std::uint8_t> frame, const Classification& classification) {
    Frame out;
    out.headers.importance = unknown_importance;
    out.headers.bytes = static_cast<std::uint32_t>(frame.size());
    bool sound = frame.size() >= ethernet_bytes;
    if (sound) {
        const std::uint16_t type = read16(&frame[12]);
        out.network_offset = ethernet_bytes;
        if (type == type_ipv4) sound = read_ipv4(frame, out);
        if (type == type_ipv6) sound = read_ipv6(frame, out);
    }
    if (!sound) {
        Frame malformed;
        malformed.kind = FrameKind::malformed;
        malformed.headers.importance = unknown_importance;
        malformed.headers.traffic_class = classification.foreign_class;
        malformed.headers.foreign = true;
        malformed.headers.bytes = out.headers.bytes;
        return malformed;
    }
    if (out.kind == FrameKind::other) {
        out.network_offset = 0;
        out.flow = crc32(frame.first(ethernet_bytes));  // destination, source, type
    }
    const std::uint8_t in_class =
        out.kind == FrameKind::other ? foreign_dscp : classification.class_of_dscp[out.dscp];
    out.headers.foreign = in_class == foreign_dscp;
    out.headers.traffic_class = out.headers.foreign ? classification.foreign_class : in_class;
    out.headers.ecn_capable = out.ecn != 0;
    return out;
}

void mark(std::span<std::uint8_t> bytes, const Frame& frame) {
    std::uint8_t* ip = bytes.data() + frame.network_offset;
    if (frame.kind == FrameKind::ipv4) {
        write_ipv4_word(ip, 0, static_cast<std::uint16_t>(read16(ip) | ecn_ce));
    } else {
        ip[1] = static_cast<std::uint8_t>(ip[1] | ecn_ce << 4);
    }
}

std::uint32_t trimmed_bytes(const Frame& frame) { return frame.dlcp_offset + std::uint32_t{dlcp_bytes}; }

std::size_t trim(std::span<std::uint8_t> bytes, const Frame& frame, const Classification& classification) {
    std::uint8_t* ip = bytes.data() + frame.network_offset;
    std::uint8_t* dlcp = bytes.data() + frame.dlcp_offset;
    std::uint8_t* udp = dlcp - udp_bytes;
    constexpr std::size_t udp_length = udp_bytes + dlcp_bytes;
    const std::uint8_t dscp =
        classification.trimmed_dscp == foreign_dscp ? frame.dscp : classification.trimmed_dscp;

    dlcp[2] |= flag_trimmed;
    write16(udp + 4, udp_length);
    write16(udp + 6, 0);
    if (frame.kind == FrameKind::ipv4) {
        write_ipv4_word(ip, 0, static_cast<std::uint16_t>((read16(ip) & 0xff03) | dscp << 2));
        write_ipv4_word(ip, 2, static_cast<std::uint16_t>(ipv4_bytes + udp_length));
    } else {
        write16(ip, (read16(ip) & 0xf03fU) | static_cast<std::uint32_t>(dscp) << 6);
        write16(ip + 4, udp_length);
        // Pseudo header (RFC 8200, 8.1): both addresses, length, next header. A sum of 0 is sent as 0xffff.
        std::uint32_t sum = sum_words({ip + 8, 32}, udp_length + protocol_udp);
        sum = sum_words({udp, udp_length}, sum);
        const auto checksum = static_cast<std::uint16_t>(~fold(sum));
        write16(udp + 6, checksum == 0 ? 0xffff : checksum);
    }
    return trimmed_bytes(frame);
}

}  // namespace dlcp::switching
