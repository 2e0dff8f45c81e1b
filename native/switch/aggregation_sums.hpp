// The sums of a slot: 32-bit lanes in the host's order, and values of packets in network order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "aggregation/packet.hpp"

namespace dlcp::switching::aggregation_frame {

using namespace aggregation;

// A lane that leaves the range stays at the end by which it left; bit i of the answer: of the lanes i, i + 32 …
inline std::uint32_t add(std::uint32_t* sums, const std::uint8_t* values, std::uint32_t lanes) {
    std::uint32_t over_any[lane_unit] = {};
    for (std::uint32_t from = 0; from < lanes; from += lane_unit) {
        for (std::uint32_t i = 0; i < lane_unit; ++i) {
            const std::uint32_t value = read32(values + std::size_t{4} * (from + i));
            const std::uint32_t old = sums[from + i];
            const std::uint32_t sum = old + value;
            const std::uint32_t over = ((old ^ sum) & (value ^ sum)) >> 31;
            sums[from + i] = over == 0 ? sum : 0x7fffffffU + (old >> 31);
            over_any[i] |= over;
        }
    }
    std::uint32_t saturated = 0;
    for (std::uint32_t i = 0; i < lane_unit; ++i) saturated |= over_any[i] << i;
    return saturated;
}

inline void take_maximum(std::uint32_t* sums, const std::uint8_t* values, std::uint32_t lanes) {
    for (std::uint32_t i = 0; i < lanes; ++i) {
        const auto value = static_cast<std::int32_t>(read32(values + std::size_t{4} * i));
        sums[i] = static_cast<std::uint32_t>(std::max(static_cast<std::int32_t>(sums[i]), value));
    }
}

inline void put(std::uint32_t* sums, const std::uint8_t* values, std::uint32_t lanes) {
    for (std::uint32_t i = 0; i < lanes; ++i) sums[i] = read32(values + std::size_t{4} * i);
}

inline void get(std::uint8_t* values, const std::uint32_t* sums, std::uint32_t lanes) {
    for (std::uint32_t i = 0; i < lanes; ++i) write32(values + std::size_t{4} * i, sums[i]);
}

}  // namespace dlcp::switching::aggregation_frame
