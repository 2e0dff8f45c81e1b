// The contents of a TCP acknowledgement, and its layout in a packet.
//
// Up to three ranges, as fit beside a timestamp in TCP's 40 bytes of options (RFC 2018 §3): real TCP has no more, and a
// bitmap would repair acknowledgement loss better than it can. Ranges are in segments, not bytes:
//
//   Packet::number        all segments below have arrived
//   PacketExtra::time_ps  echo of a segment's timestamp (RFC 7323)
//   words[0..2]           28 bits: first segment of range i; in words[0], the 4 bits above: echo of a mark, duplicate, and
//                         the number of ranges
//   words[3..4]           3 × 21 bits: length of range i; of a longer one the first 2^21 - 1
//
// With `duplicate`, range 0 is the segment that came twice (RFC 2883).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "sim/core/packet.hpp"

namespace dlcp::sim {

struct TcpRange {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;  // not in it
};

struct TcpAck {
    std::uint32_t next = 0;
    std::int64_t echo_ps = 0;
    bool marked = false;
    bool duplicate = false;
    std::uint32_t ranges = 0;
    std::array<TcpRange, 3> range;
};

inline constexpr std::uint32_t tcp_number_mask = (1u << 28) - 1;
inline constexpr std::uint32_t tcp_length_mask = (1u << 21) - 1;

inline void write_ack(const TcpAck& ack, Packet& packet, PacketExtra& extra) {
    packet.number = ack.next & tcp_number_mask;
    extra.time_ps = ack.echo_ps;
    std::uint64_t lengths = 0;
    for (std::size_t i = 0; i < ack.range.size(); ++i) {
        const TcpRange& range = ack.range[i];
        extra.words[i] = i < ack.ranges ? range.begin : 0;
        if (i < ack.ranges) lengths |= std::uint64_t{std::min(range.end - range.begin, tcp_length_mask)} << 21 * i;
    }
    extra.words[0] |= (ack.marked ? 1u : 0u) << 31 | (ack.duplicate ? 1u : 0u) << 30 | ack.ranges << 28;
    extra.words[3] = static_cast<std::uint32_t>(lengths);
    extra.words[4] = static_cast<std::uint32_t>(lengths >> 32);
}

inline TcpAck read_ack(const Packet& packet, const PacketExtra& extra) {
    TcpAck ack;
    ack.next = packet.number;
    ack.echo_ps = extra.time_ps;
    ack.marked = (extra.words[0] >> 31 & 1) != 0;
    ack.duplicate = (extra.words[0] >> 30 & 1) != 0;
    ack.ranges = extra.words[0] >> 28 & 3;
    const std::uint64_t lengths = extra.words[3] | std::uint64_t{extra.words[4]} << 32;
    for (std::size_t i = 0; i < ack.ranges; ++i) {
        ack.range[i].begin = extra.words[i] & tcp_number_mask;
        ack.range[i].end = ack.range[i].begin + (static_cast<std::uint32_t>(lengths >> 21 * i) & tcp_length_mask);
    }
    return ack;
}

}  // namespace dlcp::sim
