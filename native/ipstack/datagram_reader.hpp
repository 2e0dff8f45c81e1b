// What of the frames that come in is a UDP datagram for us, what is for the interface itself, and what is nobody's.
//
// The per-packet half of receiving. What it answers follows from the frame alone: the run that it keeps only saves
// looking twice at the same headers.
#pragma once

#include <cstdint>
#include <span>

#include "ipstack/datagram_run.hpp"
#include "ipstack/interface.hpp"
#include "ipstack/network.hpp"

namespace dlcp::ipstack {

class DatagramReader {
public:
    DatagramReader(const InterfaceConfig& config, InterfaceCounters& counters);

    FrameKind read(std::span<const std::uint8_t> frame, CardChecksum ip, CardChecksum udp, Datagram& out);
    bool is_to_our_mac(const std::uint8_t* frame) const;

private:
    bool is_to_us_or_group(const std::uint8_t* frame) const { return (frame[0] & 1) != 0 || is_to_our_mac(frame); }
    enum class Audience : std::uint8_t { us, our_groups, others };
    Audience audience_of(const NetworkPacket& packet) const;
    // False: not of the run, or odd in some way; to be looked at from the start.
    bool read_next_of_run(std::span<const std::uint8_t> frame, CardChecksum ip, CardChecksum udp, Datagram& out);
    FrameKind read_udp(const NetworkPacket& packet, const std::uint8_t* frame, bool checksum_is_good,
                       Datagram& out);
    bool checksum_holds(const NetworkPacket& packet, std::uint32_t udp_bytes_said);
    FrameKind refuse(std::uint64_t& counter) {
        ++counter;
        return FrameKind::refused;
    }

    InterfaceCounters& counters_;
    const MacAddress mac_;
    const IpAddress address_;
    const IpAddress solicited_node_;  // none over IPv4
    const std::uint16_t vlan_;
    const std::uint32_t mtu_bytes_;
    const std::uint16_t port_;
    const std::uint16_t ports_;
    DatagramRun run_;
    UdpAddress run_source_;
};

// Whether a host may have sent from this address: no group, not "nobody", not loopback.
bool may_be_source(const std::uint8_t* address, bool is_v6);

}  // namespace dlcp::ipstack
