// Writes ARP, neighbour discovery, echo replies and reports into the ring.
#include "ipstack/own_frames.hpp"

#include <algorithm>

#include "ipstack/icmp.hpp"

namespace dlcp::ipstack {

namespace {

constexpr std::size_t frame_bytes_min = 60;  // IEEE 802.3: 64 with the check sequence
constexpr IpAddress nobody_v4{.bits = 32}, nobody_v6{.bits = 128};

}  // namespace

bool OwnFrames::send_request(const IpAddress& ip, const MacAddress* mac) {
    if (count_ == frames_.size()) return false;
    ++counters_.tx_address_request_frames;
    if (!is_v6()) {
        send_arp({.operation = ArpPacket::Operation::request,
                  .sender_mac = config_.mac,
                  .sender_ip = config_.address,
                  .target_ip = ip},
                 mac != nullptr ? *mac : broadcast_mac);
        return true;
    }
    const IpAddress to = mac != nullptr ? ip : solicited_node(ip);
    send_neighbour_message({.type = NeighbourMessage::Type::solicitation, .target = ip, .mac = config_.mac},
                           config_.address, to, mac != nullptr ? *mac : multicast_mac(to));
    return true;
}

void OwnFrames::send_probe() {
    ++counters_.tx_address_probe_frames;
    if (!is_v6()) {
        send_arp({.operation = ArpPacket::Operation::request,
                  .sender_mac = config_.mac,
                  .sender_ip = nobody_v4,
                  .target_ip = config_.address},
                 broadcast_mac);
        return;
    }
    const IpAddress to = solicited_node(config_.address);
    send_neighbour_message({.type = NeighbourMessage::Type::solicitation, .target = config_.address}, nobody_v6,
                           to, multicast_mac(to));
}

void OwnFrames::send_listener_report(ListenerReport report, bool address_is_ours) {
    const IpAddress group = solicited_node(config_.address);
    const IpAddress to = report == ListenerReport::v1 ? group : mld_routers_group;
    const IpAddress from = address_is_ours && is_link_local(config_.address) ? config_.address : nobody_v6;
    std::array<std::uint8_t, listener_report_bytes_max> message;
    const std::uint32_t bytes = write_listener_report(report, group, message.data());
    write_icmp_checksum({message.data(), bytes}, from, to);
    const std::span<std::uint8_t> at = add_ip({.source = from,
                                               .destination = to,
                                               .protocol = protocol_hop_by_hop,
                                               .hop_limit = mld_hop_limit,
                                               .payload_bytes = router_alert_bytes + bytes},
                                              multicast_mac(to));
    if (at.empty()) return;
    ++counters_.tx_listener_report_frames;
    write_router_alert(at.data());
    std::copy_n(message.begin(), bytes, at.begin() + router_alert_bytes);
}

void OwnFrames::send_announcement() {
    if (!is_v6()) {
        send_arp({.operation = ArpPacket::Operation::request,
                  .sender_mac = config_.mac,
                  .sender_ip = config_.address,
                  .target_ip = config_.address},
                 broadcast_mac);
        return;
    }
    send_neighbour_message({.type = NeighbourMessage::Type::advertisement,
                            .overrides = true,
                            .target = config_.address,
                            .mac = config_.mac},
                           config_.address, all_nodes_group, multicast_mac(all_nodes_group));
}

void OwnFrames::send_arp_reply(const ArpPacket& request) {
    send_arp({.operation = ArpPacket::Operation::reply,
              .sender_mac = config_.mac,
              .sender_ip = config_.address,
              .target_mac = request.sender_mac,
              .target_ip = request.sender_ip},
             request.sender_mac);
}

void OwnFrames::send_advertisement(const IpAddress& asker, const MacAddress& asker_mac) {
    if (is_unspecified(asker)) return send_announcement();
    send_neighbour_message({.type = NeighbourMessage::Type::advertisement,
                            .solicited = true,
                            .overrides = true,
                            .target = config_.address,
                            .mac = config_.mac},
                           config_.address, asker, asker_mac);
}

void OwnFrames::send_echo_reply(const NetworkPacket& request, const MacAddress& to) {
    const IpAddress asker = ip_at(request.source, is_v6());
    const std::span<std::uint8_t> reply = add_ip({.source = config_.address,
                                                  .destination = asker,
                                                  .protocol = request.protocol,
                                                  .tos = static_cast<std::uint8_t>(request.tos & 0xfc),  // not ECN
                                                  .payload_bytes = request.payload_bytes},
                                                 to);
    if (reply.empty()) return;
    write_echo_reply({request.payload, request.payload_bytes}, is_v6(), reply.data());
    write_icmp_checksum(reply, config_.address, asker);
}

std::size_t OwnFrames::take(std::span<std::uint8_t> out) {
    while (count_ > 0) {
        const std::vector<std::uint8_t>& frame = frames_[first_];
        first_ = (first_ + 1) % frames_.size();
        --count_;
        if (frame.size() <= out.size()) {
            std::copy(frame.begin(), frame.end(), out.begin());
            ++counters_.tx_own_frames;
            return frame.size();
        }
        ++counters_.tx_own_dropped_frames;
    }
    return 0;
}

std::span<std::uint8_t> OwnFrames::add(std::size_t bytes) {
    if (count_ == frames_.size() || bytes > link_bytes() + config_.mtu_bytes) {
        ++counters_.tx_own_dropped_frames;
        return {};
    }
    std::vector<std::uint8_t>& frame = frames_[(first_ + count_++) % frames_.size()];
    frame.assign(std::max(bytes, frame_bytes_min), 0);
    return {frame.data(), bytes};
}

std::span<std::uint8_t> OwnFrames::add_ip(const IpHeader& header, const MacAddress& to) {
    const std::uint32_t headers_bytes = link_bytes() + (is_v6() ? ipv6_bytes : ipv4_bytes);
    const std::span<std::uint8_t> frame = add(headers_bytes + header.payload_bytes);
    if (frame.empty()) return {};
    write_ethernet(to, config_.mac, config_.vlan, is_v6() ? ethertype_ipv6 : ethertype_ipv4, frame.data());
    write_ip(header, frame.data() + link_bytes());
    return frame.subspan(headers_bytes);
}

void OwnFrames::send_arp(const ArpPacket& packet, const MacAddress& to) {
    const std::span<std::uint8_t> frame = add(link_bytes() + arp_bytes);
    if (frame.empty()) return;
    write_ethernet(to, config_.mac, config_.vlan, ethertype_arp, frame.data());
    write_arp(packet, frame.data() + link_bytes());
}

void OwnFrames::send_neighbour_message(const NeighbourMessage& message, const IpAddress& from, const IpAddress& to,
                                       const MacAddress& mac) {
    std::array<std::uint8_t, neighbour_message_bytes> bytes;
    const std::uint32_t count = write_neighbour_message(message, bytes.data());
    write_icmp_checksum({bytes.data(), count}, from, to);
    const std::span<std::uint8_t> at = add_ip({.source = from,
                                               .destination = to,
                                               .protocol = protocol_icmpv6,
                                               .hop_limit = neighbour_hop_limit,
                                               .payload_bytes = count},
                                              mac);
    std::copy_n(bytes.begin(), at.empty() ? 0 : count, at.begin());
}

}  // namespace dlcp::ipstack
