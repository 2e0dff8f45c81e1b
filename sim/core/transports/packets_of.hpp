// How a flow is cut into packets of one payload size, numbered from 0, and how transports refuse settings: with name,
// value and what is accepted. No state; what a transport does with its packets is its own.
#pragma once

#include <algorithm>
#include <bit>
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

template <class Number>
[[noreturn]] void refuse_setting(const char* transport, const char* name, Number value, const char* accepted) {
    throw std::invalid_argument(std::string(transport) + ": " + name + " is " + std::to_string(value) +
                                "; accepted: " + accepted);
}

// The settings of transports with a window counted in packets, and with packets that take their paths in turn.
inline void check_window_settings(const char* transport, std::uint32_t payload_bytes, std::uint32_t header_bytes,
                                  std::int64_t window_packets, std::uint32_t paths) {
    const std::uint64_t both = std::uint64_t{payload_bytes} + header_bytes;
    if (payload_bytes == 0 || header_bytes == 0 || both > UINT16_MAX)
        refuse_setting(transport, "payload_bytes + header_bytes", both, "each at least 1, at most 65535 together");
    if (window_packets < 0 || window_packets >= packet_number_limit)
        refuse_setting(transport, "window_packets", window_packets, "0 (a round trip's worth) to 268435455");
    if (!std::has_single_bit(paths) || paths > 65536)
        refuse_setting(transport, "paths", paths, "powers of two up to 65536");
}

// Throws if the flow has more packets than there are numbers.
inline std::uint32_t numbered_packets_of(const char* transport, std::size_t flow, std::uint64_t bytes,
                                         std::uint32_t payload_bytes) {
    const std::uint64_t packets = packets_of(bytes, payload_bytes);
    if (packets >= packet_number_limit)
        throw std::invalid_argument(std::string(transport) + ": flow " + std::to_string(flow) + " has " +
                                    std::to_string(packets) + " packets; accepted: fewer than 268435456");
    return static_cast<std::uint32_t>(packets);
}

}  // namespace dlcp::sim
