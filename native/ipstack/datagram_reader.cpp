// Sorts frames, and checks lengths and checksums of datagrams for us.
#include "ipstack/datagram_reader.hpp"

#include <cstring>

#include "ipstack/mld.hpp"
#include "ipstack/ndp.hpp"

namespace dlcp::ipstack {

namespace {

template <std::size_t size>
bool equal(const std::uint8_t* a, const std::uint8_t* b) {
    return std::memcmp(a, b, size) == 0;
}

}  // namespace

bool may_be_source(const std::uint8_t* address, bool is_v6) {
    if (is_v6) {
        static constexpr std::array<std::uint8_t, 15> zeros{};
        return address[0] != 0xff && !(equal<15>(address, zeros.data()) && address[15] <= 1);
    }
    // 0/8, 127/8, 224/4 and the limited broadcast (RFC 1122, 3.2.1.3).
    return address[0] != 0 && address[0] != 127 && address[0] >> 4 != 0xe && wire::load32(address) != 0xffffffff;
}

DatagramReader::DatagramReader(const InterfaceConfig& config, InterfaceCounters& counters)
    : counters_(counters),
      mac_(config.mac),
      address_(config.address),
      solicited_node_(config.address.is_v6() ? solicited_node(config.address) : IpAddress{}),
      vlan_(config.vlan),
      mtu_bytes_(config.mtu_bytes),
      port_(config.port),
      ports_(config.ports),
      run_(config.address.is_v6(), config.vlan) {}

bool DatagramReader::is_to_our_mac(const std::uint8_t* frame) const { return equal<6>(frame, mac_.data()); }

DatagramReader::Audience DatagramReader::audience_of(const NetworkPacket& packet) const {
    if (!packet.is_v6)
        return equal<4>(packet.destination, address_.bytes.data()) ? Audience::us : Audience::others;
    if (equal<16>(packet.destination, address_.bytes.data())) return Audience::us;
    if (equal<16>(packet.destination, solicited_node_.bytes.data()) ||
        equal<16>(packet.destination, all_nodes_group.bytes.data()))
        return Audience::our_groups;
    return Audience::others;
}

FrameKind DatagramReader::read(std::span<const std::uint8_t> frame, CardChecksum ip, CardChecksum udp,
                               Datagram& out) {
    if (read_next_of_run(frame, ip, udp, out)) return FrameKind::datagram;
    NetworkPacket packet;
    // "Bad" is not believed: there are cards that say so of a datagram whose checksum is 0, or was never computed.
    switch (read_network(frame, vlan_, mtu_bytes_, ip == CardChecksum::good, packet)) {
        case NetworkKind::ip: break;
        case NetworkKind::arp:
            if (address_.is_v6()) return refuse(counters_.rx_other_protocol_frames);
            return is_to_us_or_group(frame.data()) ? FrameKind::other : refuse(counters_.rx_other_address_frames);
        case NetworkKind::malformed: return refuse(counters_.rx_malformed_frames);
        case NetworkKind::oversized: return refuse(counters_.rx_oversized_frames);
        case NetworkKind::other_vlan: return refuse(counters_.rx_other_address_frames);
        case NetworkKind::other_protocol: return refuse(counters_.rx_other_protocol_frames);
        case NetworkKind::fragment: return refuse(counters_.rx_fragment_frames);
        case NetworkKind::bad_checksum: return refuse(counters_.rx_bad_checksum_frames);
    }
    if (packet.is_v6 != address_.is_v6()) return refuse(counters_.rx_other_protocol_frames);
    const Audience audience = audience_of(packet);
    if (packet.protocol == protocol_udp) {
        // A datagram to one host in a frame to many is not taken (RFC 1122, 3.3.6), nor one that only a card in
        // promiscuous mode hears.
        if (audience != Audience::us || !is_to_our_mac(frame.data()))
            return refuse(counters_.rx_other_address_frames);
        const FrameKind kind = read_udp(packet, frame.data(), udp == CardChecksum::good, out);
        if (kind == FrameKind::datagram && packet.payload == frame.data() + run_.udp_offset()) {
            run_.begin(frame);
            run_source_ = out.source;
        }
        return kind;
    }
    if (audience == Audience::others || !is_to_us_or_group(frame.data()))
        return refuse(counters_.rx_other_address_frames);
    // Behind a hop-by-hop header there may be a query for listeners; datagrams behind one are not looked for.
    const bool may_be_query = packet.is_v6 && packet.protocol == protocol_hop_by_hop;
    if (packet.protocol != (packet.is_v6 ? protocol_icmpv6 : protocol_icmp) && !may_be_query)
        return refuse(counters_.rx_other_protocol_frames);
    return FrameKind::other;
}

bool DatagramReader::read_next_of_run(std::span<const std::uint8_t> frame, CardChecksum ip, CardChecksum udp,
                                      Datagram& out) {
    if (!run_.goes_on(frame)) return false;
    const std::uint8_t* const header = frame.data() + run_.ip_offset();
    const std::uint8_t* const datagram = frame.data() + run_.udp_offset();
    const bool is_v6 = address_.is_v6();
    const std::uint32_t header_bytes = run_.udp_offset() - run_.ip_offset();
    const std::uint32_t total_bytes = is_v6 ? wire::load16(header + 4) + ipv6_bytes : wire::load16(header + 2);
    const std::uint32_t bytes = wire::load16(datagram + 4);
    if (total_bytes > mtu_bytes_ || total_bytes + run_.ip_offset() > frame.size() || bytes < udp_bytes ||
        bytes + header_bytes > total_bytes)
        return false;
    if (!is_v6 && ip != CardChecksum::good && !ipv4_checksum_holds(header)) return false;
    if (wire::load16(datagram + 6) == 0) {
        if (is_v6) return false;  // even where the sum would hold
    } else if (udp != CardChecksum::good) {
        // Those that do not hold, and those that a kernel left out, are distinguished there.
        const std::uint8_t* const addresses = header + (is_v6 ? 8 : 12);
        const std::uint64_t pseudo =
            pseudo_header_sum(addresses, addresses + (is_v6 ? 16 : 4), is_v6, protocol_udp, bytes);
        if (fold(add_words(pseudo, datagram, bytes)) != 0xffff) return false;
    }
    ++counters_.rx_datagrams;
    out.payload = datagram + udp_bytes;
    out.payload_bytes = bytes - udp_bytes;
    out.tos = is_v6 ? static_cast<std::uint8_t>(wire::load16(header) >> 4) : header[1];
    out.source = run_source_;
    out.destination_port = wire::load16(datagram + 2);
    out.source_mac = frame.data() + 6;
    return true;
}

FrameKind DatagramReader::read_udp(const NetworkPacket& packet, const std::uint8_t* frame, bool checksum_is_good,
                                   Datagram& out) {
    const std::uint8_t* const udp = packet.payload;
    if (packet.payload_bytes < udp_bytes) return refuse(counters_.rx_malformed_frames);
    const std::uint32_t bytes = wire::load16(udp + 4);
    if (bytes < udp_bytes || bytes > packet.payload_bytes) return refuse(counters_.rx_malformed_frames);
    if (!may_be_source(packet.source, packet.is_v6)) return refuse(counters_.rx_malformed_frames);
    const std::uint16_t port = wire::load16(udp + 2);
    if (port != port_ && !is_path_port(port, port_, ports_)) return refuse(counters_.rx_other_port_frames);
    if (wire::load16(udp + 6) == 0) {
        // "None" is no choice over IPv6 (RFC 8200, 8.1).
        if (packet.is_v6) return refuse(counters_.rx_bad_checksum_frames);
    } else if (!checksum_is_good && !checksum_holds(packet, bytes)) {
        return refuse(counters_.rx_bad_checksum_frames);
    }
    ++counters_.rx_datagrams;
    out.payload = udp + udp_bytes;
    out.payload_bytes = bytes - udp_bytes;
    out.tos = packet.tos;
    read_ip(packet.source, packet.is_v6, out.source.ip);
    out.source.port = wire::load16(udp);
    out.destination_port = port;
    out.source_mac = frame + 6;
    return FrameKind::datagram;
}

bool DatagramReader::checksum_holds(const NetworkPacket& packet, std::uint32_t bytes) {
    const std::uint64_t pseudo =
        pseudo_header_sum(packet.source, packet.destination, packet.is_v6, protocol_udp, bytes);
    if (fold(add_words(pseudo, packet.payload, bytes)) == 0xffff) return true;
    // A kernel at the other end of a veth left it to a card (CHECKSUM_PARTIAL), and there was none on the way: the
    // field still has the pseudo header's sum.
    std::uint16_t field;
    std::memcpy(&field, packet.payload + 6, sizeof field);
    if (field != fold(pseudo)) return false;
    ++counters_.rx_partial_checksum_frames;
    return true;
}

}  // namespace dlcp::ipstack
