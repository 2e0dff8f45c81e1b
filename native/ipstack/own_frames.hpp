// Frames of the interface's own: written here, and waiting here to be sent. A ring of a fixed number; what finds no
// room, or is longer than the MTU, is dropped and counted.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ipstack/arp.hpp"
#include "ipstack/interface.hpp"
#include "ipstack/mld.hpp"
#include "ipstack/ndp.hpp"
#include "ipstack/network.hpp"

namespace dlcp::ipstack {

class OwnFrames {
public:
    // Both are its owner's, and outlive it.
    OwnFrames(const InterfaceConfig& config, InterfaceCounters& counters) : config_(config), counters_(counters) {}

    // Who has `ip`? `mac` alone is asked, or all if it is nullptr. False: there is no room, and nothing was dropped.
    bool send_request(const IpAddress& ip, const MacAddress* mac);
    // Whether anybody has our address: in nobody's name (RFC 5227, 2.1.1; RFC 4862, 5.4.2).
    void send_probe();
    // That we listen to the group that our IPv6 address is solicited at. In the name of our address if that is link-local
    // and ours, else in nobody's: snooping switches heed that, routers need not know (RFC 3590, 4).
    void send_listener_report(ListenerReport report, bool address_is_ours);
    // Who we are: a gratuitous ARP request (RFC 5227, 2.3), or an unsolicited advertisement to all nodes (RFC 4861,
    // 7.2.6).
    void send_announcement();
    // To a station that has asked in ARP, or looks whether our address is free (its own is 0.0.0.0 then).
    void send_arp_reply(const ArpPacket& request);
    // To a station that has asked in neighbour discovery; from "::", whether our address is free: to all nodes (RFC 4861,
    // 7.2.4).
    void send_advertisement(const IpAddress& asker, const MacAddress& asker_mac);
    // The answer to an echo request, to the MAC that it came from.
    void send_echo_reply(const NetworkPacket& request, const MacAddress& to);

    // Moves the oldest to `out`; 0: there is none. One that does not fit is dropped.
    std::size_t take(std::span<std::uint8_t> out);

private:
    bool is_v6() const { return config_.address.is_v6(); }
    std::uint32_t link_bytes() const { return ethernet_bytes + (config_.vlan != 0 ? vlan_bytes : 0); }
    // A frame of this length, zeroed; empty: no room.
    std::span<std::uint8_t> add(std::size_t bytes);
    // The same with Ethernet and IP headers in it; answers what is behind them.
    std::span<std::uint8_t> add_ip(const IpHeader& header, const MacAddress& to);
    void send_arp(const ArpPacket& packet, const MacAddress& to);
    // The message with its IPv6 header; from us, or from nobody.
    void send_neighbour_message(const NeighbourMessage& message, const IpAddress& from, const IpAddress& to,
                                const MacAddress& mac);

    const InterfaceConfig& config_;
    InterfaceCounters& counters_;
    std::array<std::vector<std::uint8_t>, Interface::own_frames_max> frames_;
    std::size_t first_ = 0;
    std::size_t count_ = 0;
};

}  // namespace dlcp::ipstack
