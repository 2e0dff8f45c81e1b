// Joins the parts: destinations, neighbours, address claim, multicast reports, own frames.
#include "ipstack/interface.hpp"

#include <algorithm>
#include <deque>

#include "ipstack/address_claim.hpp"
#include "ipstack/arp.hpp"
#include "ipstack/datagram_reader.hpp"
#include "ipstack/destinations.hpp"
#include "ipstack/icmp.hpp"
#include "ipstack/mld.hpp"
#include "ipstack/ndp.hpp"
#include "ipstack/neighbours.hpp"
#include "ipstack/own_frames.hpp"

namespace dlcp::ipstack {

namespace {

// RFC 5227, 1.1. A defence at most every ten seconds, so that two who want the same address do not answer each other
// forever.
constexpr Duration defend_interval = seconds(10);

}  // namespace

class Interface::Impl final : public Neighbours::Listener {
public:
    explicit Impl(const InterfaceConfig& config)
        : config_(config),
          reader_(config_, counters_),
          frames_(config_, counters_),
          neighbours_(neighbours_max, *this),
          listener_(config_.mac) {
        if (config_.address.is_v6())
            groups_ = {multicast_mac(all_nodes_group), multicast_mac(solicited_node(config_.address))};
        for (const StaticNeighbour& neighbour : config_.neighbours) {
            if (neighbour.ip.bits == config_.address.bits) neighbours_.add_permanent(neighbour.ip, neighbour.mac);
        }
    }

    const InterfaceConfig& config() const { return config_; }
    std::span<const MacAddress> groups() const { return groups_; }
    const InterfaceCounters& counters() const { return counters_; }
    std::uint64_t resolutions() const { return destinations_.resolutions(); }

    // ---- sending ----

    const Destination* reach(Time now, const UdpAddress& to);
    void ask(Time now, const Destination& destination) {
        if (!destination.resolved) neighbours_.ask(now, destination.next_hop);
    }
    void used(Time now, const Destination& destination) { neighbours_.used(now, destination.next_hop); }

    // ---- receiving ----

    FrameKind read(std::span<const std::uint8_t> frame, CardChecksum ip, CardChecksum udp, Datagram& out) {
        return reader_.read(frame, ip, udp, out);
    }
    void handle_frame(Time now, std::span<const std::uint8_t> frame);
    void heard(Time now, const Datagram& datagram);

    // ---- own frames, time ----

    std::size_t next_frame(std::span<std::uint8_t> out) { return frames_.take(out); }
    void claim(Time now);
    AddressState address_state() const { return claim_.state(); }
    const MacAddress& address_holder() const { return address_holder_; }
    void announce(Time now);
    Time next_deadline() const {
        return std::min({neighbours_.next_deadline(), claim_.next_deadline(), listener_.next_deadline()});
    }
    void handle_timer(Time now);
    std::optional<InterfaceEvent> next_event();
    std::optional<MacAddress> mac_of(const IpAddress& ip) const;

    // ---- Neighbours::Listener ----

    bool solicit(const IpAddress& ip, const MacAddress* mac) override {
        switch (claim_.state()) {
            case AddressState::ours: return frames_.send_request(ip, mac);
            case AddressState::probing: return false;  // soon
            case AddressState::taken: break;           // never: as if nobody answered
        }
        return true;
    }
    void mac_known(Neighbours::Index neighbour, const MacAddress& mac) override {
        destinations_.resolve_behind(neighbour, mac);
    }
    void mac_forgotten(Neighbours::Index neighbour) override { destinations_.forget_behind(neighbour); }
    void lost(const IpAddress& ip, const MacAddress& mac) override {
        ++counters_.lost_neighbours;
        tell({InterfaceEvent::Kind::neighbour_lost, ip, mac});
    }
    void found(const IpAddress& ip, const MacAddress& mac) override {
        tell({InterfaceEvent::Kind::neighbour_found, ip, mac});
    }

private:
    static constexpr std::size_t events_max = 256;  // the oldest goes

    bool is_v6() const { return config_.address.is_v6(); }
    bool address_is_ours() const { return claim_.state() == AddressState::ours; }
    bool on_link(const IpAddress& ip) const;
    bool can_send_to(const IpAddress& ip) const;
    // The next hop of a packet to `ip`; no address: it cannot be reached.
    IpAddress next_hop_of(const IpAddress& ip) const;

    void handle_arp(Time now, const NetworkPacket& packet);
    void handle_neighbour_message(Time now, const NetworkPacket& packet, const std::uint8_t* frame);
    void handle_echo(const NetworkPacket& packet, const std::uint8_t* frame);
    void handle_hop_by_hop(Time now, const NetworkPacket& packet);
    // What is due to be said of our address and our group.
    void speak(Time now);
    // Somebody else says that our address is its own.
    void handle_conflict(Time now, const MacAddress& mac);

    void tell(const InterfaceEvent& event) {
        if (events_.size() == events_max) events_.pop_front();
        events_.push_back(event);
    }

    const InterfaceConfig config_;
    InterfaceCounters counters_;
    DatagramReader reader_;
    std::vector<MacAddress> groups_;
    OwnFrames frames_;
    std::deque<InterfaceEvent> events_;
    Destinations destinations_;
    Neighbours neighbours_;  // calls back, so after what it calls for

    AddressClaim claim_;
    MacAddress address_holder_{};
    std::optional<Time> conflict_told_at_;
    MulticastListener listener_;  // of the solicited-node group; never asked over IPv4
};

// ---- sending ----

bool Interface::Impl::on_link(const IpAddress& ip) const {
    return is_link_local(ip) || in_prefix(ip, config_.address, config_.prefix_bits);
}

bool Interface::Impl::can_send_to(const IpAddress& ip) const {
    if (ip.bits != config_.address.bits || ip == config_.address || !may_be_source(ip.bytes.data(), ip.is_v6()))
        return false;
    if (ip.is_v6() || config_.prefix_bits == 0 || config_.prefix_bits > 30 || !on_link(ip)) return true;
    // The network's own addresses: all bits of the host part 0, or 1 (RFC 1122, 3.2.1.3).
    const std::uint32_t host_mask = 0xffffffffu >> config_.prefix_bits;
    const std::uint32_t host = wire::load32(ip.bytes.data()) & host_mask;
    return host != 0 && host != host_mask;
}

IpAddress Interface::Impl::next_hop_of(const IpAddress& ip) const {
    if (on_link(ip)) return ip;
    return config_.gateway.bits == ip.bits && config_.gateway != config_.address ? config_.gateway : IpAddress{};
}

const Destination* Interface::Impl::reach(Time now, const UdpAddress& to) {
    if (const Destination* known = destinations_.find(to)) {
        ask(now, *known);
        return known;
    }
    if (to.port == 0 || !can_send_to(to.ip) || destinations_.size() == destinations_max) return nullptr;
    const IpAddress next_hop = next_hop_of(to.ip);
    if (!next_hop.present()) return nullptr;
    const Neighbours::Index neighbour = neighbours_.keep(next_hop);
    if (neighbour == Neighbours::none) return nullptr;
    Destination& destination = destinations_.add(to, neighbour);
    prepare(destination, to, config_.address, config_.mac, config_.vlan);
    if (const MacAddress* mac = neighbours_.mac_of(neighbour)) {
        destinations_.resolve(destination, *mac);
    } else {
        neighbours_.ask(now, neighbour);
    }
    return &destination;
}

// ---- receiving ----

void Interface::Impl::heard(Time now, const Datagram& datagram) {
    const IpAddress next_hop = next_hop_of(datagram.source.ip);
    if (!next_hop.present()) return;
    const Neighbours::Index neighbour = neighbours_.find(next_hop);
    if (neighbour == Neighbours::none) return;
    MacAddress mac;
    std::copy_n(datagram.source_mac, mac.size(), mac.begin());
    neighbours_.heard(now, neighbour, mac);
}

void Interface::Impl::handle_frame(Time now, std::span<const std::uint8_t> frame) {
    NetworkPacket packet;
    const NetworkKind kind = read_network(frame, config_.vlan, config_.mtu_bytes, false, packet);
    if (kind != NetworkKind::ip && kind != NetworkKind::arp) return;
    if (kind == NetworkKind::arp) {
        if (!is_v6()) handle_arp(now, packet);
        return;
    }
    if (packet.is_v6 != is_v6()) return;
    if (is_v6() && packet.protocol == protocol_hop_by_hop) return handle_hop_by_hop(now, packet);
    if (packet.protocol != (is_v6() ? protocol_icmpv6 : protocol_icmp)) return;
    if (packet.payload_bytes < icmp_bytes) {
        ++counters_.rx_malformed_frames;
        return;
    }
    if (!icmp_checksum_holds(packet)) {
        ++counters_.rx_bad_checksum_frames;
        return;
    }
    const std::uint8_t type = packet.payload[0];
    if (type == (is_v6() ? icmpv6_echo_request : icmp_echo_request)) {
        handle_echo(packet, frame.data());
    } else if (is_v6() && (type == static_cast<std::uint8_t>(NeighbourMessage::Type::solicitation) ||
                           type == static_cast<std::uint8_t>(NeighbourMessage::Type::advertisement))) {
        handle_neighbour_message(now, packet, frame.data());
    } else {
        ++counters_.rx_other_protocol_frames;
    }
}

void Interface::Impl::handle_arp(Time now, const NetworkPacket& packet) {
    const std::optional<ArpPacket> arp = parse_arp({packet.payload, packet.payload_bytes});
    if (!arp || !is_station(arp->sender_mac)) {
        ++counters_.rx_malformed_frames;
        return;
    }
    if (arp->sender_mac == config_.mac) return;  // our own: some switches return what goes to all
    if (arp->sender_ip == config_.address) return handle_conflict(now, arp->sender_mac);
    // A probe (RFC 5227, 1.1) says nothing of its sender, and is answered as any request. Two that probe for the same
    // address both leave it (2.1.1).
    const bool is_probe = is_unspecified(arp->sender_ip);
    if (!address_is_ours() && arp->target_ip == config_.address) {
        if (is_probe && arp->operation == ArpPacket::Operation::request) handle_conflict(now, arp->sender_mac);
        return;
    }
    if (!is_probe && !may_be_source(arp->sender_ip.bytes.data(), false)) {
        ++counters_.rx_malformed_frames;
        return;
    }
    const bool for_us = arp->target_ip == config_.address;
    const Neighbours::Index sender = is_probe ? Neighbours::none : neighbours_.find(arp->sender_ip);
    if (arp->operation == ArpPacket::Operation::request && for_us) {
        ++counters_.rx_address_request_frames;
        if (!is_probe && on_link(arp->sender_ip)) neighbours_.asked_by(now, arp->sender_ip, arp->sender_mac);
        frames_.send_arp_reply(*arp);
    } else if (sender != Neighbours::none) {
        // An answer to us confirms; an announcement, or what goes to others, only says where its sender is (RFC 826).
        const bool is_answer =
            arp->operation == ArpPacket::Operation::reply && for_us && neighbours_.is_asked(sender);
        neighbours_.answered_by(now, sender, &arp->sender_mac, is_answer, true);
    }
}

void Interface::Impl::handle_neighbour_message(Time now, const NetworkPacket& packet, const std::uint8_t* frame) {
    const IpAddress source = ip_at(packet.source, true);
    const std::optional<NeighbourMessage> message = parse_neighbour_message(
        {packet.payload, packet.payload_bytes}, source, ip_at(packet.destination, true), packet.hop_limit);
    MacAddress said_mac;
    std::copy_n(frame + 6, said_mac.size(), said_mac.begin());
    if (message && message->mac) said_mac = *message->mac;
    const bool may_be = is_unspecified(source) || may_be_source(packet.source, true);
    if (!message || !may_be || !is_station(said_mac)) {
        ++counters_.rx_malformed_frames;
        return;
    }
    if (said_mac == config_.mac) return;

    if (message->type == NeighbourMessage::Type::advertisement) {
        if (message->target == config_.address) return handle_conflict(now, said_mac);
        const Neighbours::Index neighbour = neighbours_.find(message->target);
        if (neighbour == Neighbours::none) return;
        neighbours_.answered_by(now, neighbour, message->mac ? &*message->mac : nullptr, message->solicited,
                                message->overrides);
        return;
    }
    if (source == config_.address) return handle_conflict(now, said_mac);
    if (message->target != config_.address) return;
    if (!address_is_ours()) {
        // A station that asks from "::" probes for it too (RFC 4862, 5.4.3).
        if (is_unspecified(source)) handle_conflict(now, said_mac);
        return;
    }
    ++counters_.rx_address_request_frames;
    // A station without an address names no MAC either: parse_neighbour_message() has seen to it.
    if (message->mac && on_link(source)) neighbours_.asked_by(now, source, *message->mac);
    frames_.send_advertisement(source, said_mac);
}

void Interface::Impl::handle_echo(const NetworkPacket& packet, const std::uint8_t* frame) {
    // To one host only (RFC 1122, 3.2.2.6 leaves it open for groups), so that nobody can ask for a flood.
    const std::size_t address_bytes = is_v6() ? 16 : 4;
    if (!reader_.is_to_our_mac(frame) ||
        !std::equal(packet.destination, packet.destination + address_bytes, config_.address.bytes.begin()))
        return;
    const IpAddress source = ip_at(packet.source, is_v6());
    MacAddress sender_mac;
    std::copy_n(frame + 6, sender_mac.size(), sender_mac.begin());
    if (packet.payload[1] != 0 || source == config_.address || !may_be_source(packet.source, is_v6()) ||
        !is_station(sender_mac)) {
        ++counters_.rx_malformed_frames;
        return;
    }
    ++counters_.rx_echo_request_frames;
    if (!config_.answers_echo || !address_is_ours()) return;
    // Back to where the frame came from: no neighbour need be known for it.
    frames_.send_echo_reply(packet, sender_mac);
}

void Interface::Impl::handle_hop_by_hop(Time now, const NetworkPacket& packet) {
    if (const std::optional<ListenerQuery> query = read_listener_query(packet, counters_))
        listener_.handle_query(now, *query, solicited_node(config_.address));
}

void Interface::Impl::handle_conflict(Time now, const MacAddress& mac) {
    ++counters_.address_conflict_frames;
    if (claim_.state() == AddressState::taken) return;
    if (claim_.state() == AddressState::probing) {
        claim_.lose();
        address_holder_ = mac;
        tell({InterfaceEvent::Kind::address_taken, config_.address, mac});
        return;
    }
    if (conflict_told_at_ && now - *conflict_told_at_ < defend_interval) return;
    conflict_told_at_ = now;
    tell({InterfaceEvent::Kind::address_taken, config_.address, mac});
    frames_.send_announcement();
}

// ---- time, events ----

void Interface::Impl::claim(Time now) {
    claim_.claim(now);
    if (is_v6()) listener_.join(now);  // before the first probe, so that its answer comes here (RFC 4862, 5.4.2)
    speak(now);
}

void Interface::Impl::announce(Time now) {
    claim_.announce(now);
    if (is_v6()) listener_.join(now);
    speak(now);
}

void Interface::Impl::speak(Time now) {
    while (const std::optional<ListenerReport> report = listener_.poll_report(now))
        frames_.send_listener_report(*report, address_is_ours());
    switch (claim_.poll(now)) {
        case AddressClaim::Say::probe: return frames_.send_probe();
        case AddressClaim::Say::announcement: return frames_.send_announcement();
        case AddressClaim::Say::nothing: return;
    }
}

void Interface::Impl::handle_timer(Time now) {
    speak(now);  // first, for neighbours wait for the address to be ours
    neighbours_.handle_timer(now);
}

std::optional<InterfaceEvent> Interface::Impl::next_event() {
    if (events_.empty()) return std::nullopt;
    const InterfaceEvent event = events_.front();
    events_.pop_front();
    return event;
}

std::optional<MacAddress> Interface::Impl::mac_of(const IpAddress& ip) const {
    const Neighbours::Index neighbour = neighbours_.find(ip);
    if (neighbour == Neighbours::none) return std::nullopt;
    const MacAddress* mac = neighbours_.mac_of(neighbour);
    return mac != nullptr ? std::optional<MacAddress>(*mac) : std::nullopt;
}

// ---- the interface ----

Interface::Interface(const InterfaceConfig& config) : impl_(std::make_unique<Impl>(config)) {}
Interface::~Interface() = default;

const InterfaceConfig& Interface::config() const { return impl_->config(); }
std::uint32_t Interface::max_datagram_bytes() const {
    const std::uint32_t headers = (config().address.is_v6() ? ipv6_bytes : ipv4_bytes) + udp_bytes;
    // What the length fields of IPv4 and UDP hold.
    return std::max(std::min(config().mtu_bytes, std::uint32_t{65535}), headers) - headers;
}
std::span<const MacAddress> Interface::groups() const { return impl_->groups(); }
const Destination* Interface::reach(Time now, const UdpAddress& to) { return impl_->reach(now, to); }
void Interface::ask(Time now, const Destination& destination) { impl_->ask(now, destination); }
std::uint64_t Interface::resolutions() const { return impl_->resolutions(); }
void Interface::used(Time now, const Destination& destination) { impl_->used(now, destination); }
FrameKind Interface::read(std::span<const std::uint8_t> frame, CardChecksum ip, CardChecksum udp, Datagram& out) {
    return impl_->read(frame, ip, udp, out);
}
void Interface::handle_frame(Time now, std::span<const std::uint8_t> frame) { impl_->handle_frame(now, frame); }
void Interface::heard(Time now, const Datagram& datagram) { impl_->heard(now, datagram); }
std::size_t Interface::next_frame(std::span<std::uint8_t> out) { return impl_->next_frame(out); }
void Interface::claim(Time now) { impl_->claim(now); }
AddressState Interface::address_state() const { return impl_->address_state(); }
const MacAddress& Interface::address_holder() const { return impl_->address_holder(); }
void Interface::announce(Time now) { impl_->announce(now); }
Time Interface::next_deadline() const { return impl_->next_deadline(); }
void Interface::handle_timer(Time now) { impl_->handle_timer(now); }
std::optional<InterfaceEvent> Interface::next_event() { return impl_->next_event(); }
const InterfaceCounters& Interface::counters() const { return impl_->counters(); }
std::optional<MacAddress> Interface::mac_of(const IpAddress& ip) const { return impl_->mac_of(ip); }

}  // namespace dlcp::ipstack
