// How a flow is cut into packets of one payload size, numbered from 0. No state; what a transport does with its packets
// is its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace dlcp::sim {

inline constexpr std::uint32_t packet_number_limit = 1U << 28;  // Packet::number has 28 bits

// An empty flow is a packet, too.
inline std::uint64_t packets_of(std::uint64_t bytes, std::uint32_t payload_bytes) {
    return std::max<std::uint64_t>((bytes + payload_bytes - 1) / payload_bytes, 1);
}

// Of a packet of the flow; `number` is below packets_of.
inline std::uint32_t payload_of(std::uint64_t bytes, std::uint32_t payload_bytes, std::uint32_t number) {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(payload_bytes, bytes - std::uint64_t{number} * payload_bytes));
}

// Throws if the flow has `limit` packets or more.
inline std::uint32_t numbered_packets_of(const char* transport, std::size_t flow, std::uint64_t bytes,
                                         std::uint32_t payload_bytes, std::uint32_t limit = packet_number_limit) {
    const std::uint64_t packets = packets_of(bytes, payload_bytes);
    if (packets >= limit)
        throw std::invalid_argument(std::string(transport) + ": flow " + std::to_string(flow) + " has " +
                                    std::to_string(packets) + " packets; accepted: fewer than " +
                                    std::to_string(limit));
    return static_cast<std::uint32_t>(packets);
}

}  // namespace dlcp::sim
