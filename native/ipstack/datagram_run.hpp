// The headers of a datagram that was accepted, by which those that follow it are known.
//
// Engines send the packets of one path in runs. Within one, headers differ in lengths, TOS, flow label, identification
// and checksums; where all else is as before, it is compared in a few words and not taken apart again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "ipstack/headers.hpp"

namespace dlcp::ipstack {

class DatagramRun {
public:
    // Of an interface with this kind of address and this tag (0: none). IPv4 headers have no options.
    DatagramRun(bool is_v6, std::uint16_t vlan)
        : ip_offset_(ethernet_bytes + (vlan != 0 ? vlan_bytes : 0)),
          udp_offset_(ip_offset_ + (is_v6 ? ipv6_bytes : ipv4_bytes)),
          compared_bytes_((udp_offset_ + udp_bytes + 15) / 16 * 16) {
        std::array<std::uint8_t, compared_bytes_max> same{};
        std::memset(same.data(), 0xff, udp_offset_ + udp_bytes);
        std::uint8_t* const ip = same.data() + ip_offset_;
        if (is_v6) {
            ip[0] = 0xf0;               // version; the rest is traffic class
            std::memset(ip + 1, 0, 5);  // traffic class, flow label, payload length
        } else {
            std::memset(ip + 1, 0, 5);   // TOS, total length, identification
            std::memset(ip + 10, 0, 2);  // checksum
        }
        std::memset(same.data() + udp_offset_ + 4, 0, 4);  // length and checksum
        std::memcpy(same_.data(), same.data(), same.size());
    }

    std::uint32_t ip_offset() const { return ip_offset_; }
    std::uint32_t udp_offset() const { return udp_offset_; }

    // This one was accepted; its UDP header lies at udp_offset().
    void begin(std::span<const std::uint8_t> frame) {
        begun_ = frame.size() >= compared_bytes_;
        if (begun_) std::memcpy(last_.data(), frame.data(), compared_bytes_);
    }
    // Whether all that may not differ is as it was.
    bool goes_on(std::span<const std::uint8_t> frame) const {
        if (!begun_ || frame.size() < compared_bytes_) return false;
        std::uint64_t difference = 0;
        for (std::size_t i = 0; i < compared_bytes_ / 8; ++i) {
            std::uint64_t word;
            std::memcpy(&word, frame.data() + 8 * i, sizeof word);
            difference |= (word ^ last_[i]) & same_[i];
        }
        return difference == 0;
    }

private:
    static constexpr std::size_t compared_bytes_max = (headers_bytes_max + 15) / 16 * 16;

    std::array<std::uint64_t, compared_bytes_max / 8> same_{}, last_{};
    std::uint32_t ip_offset_, udp_offset_, compared_bytes_;
    bool begun_ = false;
};

}  // namespace dlcp::ipstack
