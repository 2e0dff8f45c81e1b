// The aggregation packet: where its fields are, and what they may be. p4/aggregation.md draws it.
//
// The payload of a UDP datagram over IPv4: a header of 36 bytes and `lanes` values of 32 bits, all big-endian. The P4
// program has 32 lanes; the software switch takes any multiple of 32 that fits into a frame, as many as its job says.
// tests/vectors/aggregation.txt holds this file and p4/blocks/aggregation_headers.p4 together.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace dlcp::aggregation {

inline constexpr std::uint32_t magic = 0x444c4341;  // "DLCA"
inline constexpr std::uint8_t version = 1;
inline constexpr std::size_t header_bytes = 36;
inline constexpr std::uint32_t lane_unit = 32;    // `lanes` is a multiple of it; the P4 program has so many
inline constexpr std::uint32_t max_lanes = 2208;  // 8 868 bytes, in a jumbo frame of 9 000; 352 in one of 1 500
inline constexpr std::uint32_t max_ranks = 1024;  // two levels of switches
inline constexpr std::uint32_t max_workers = 32;  // bits of the bitmap
inline constexpr std::uint8_t hub = 255;          // the hub's worker number

enum class Kind : std::uint8_t { contribution = 1, result = 2, flush = 3, release = 4 };
inline constexpr std::uint8_t flag_to_hub = 1;
inline constexpr std::uint8_t flag_retransmission = 2;
inline constexpr std::uint8_t operation_sum = 0;  // any other: maximum

// Where fields begin, from the first byte of the payload.
inline constexpr std::size_t at_version = 4, at_kind = 5, at_flags = 6, at_operation = 7, at_job = 8,
                             at_message = 12, at_block = 16, at_slot = 20, at_generation = 22, at_bitmap = 24,
                             at_worker = 28, at_count = 29, at_exponent = 30, at_quorum = 31, at_saturated = 32;

inline constexpr std::size_t packet_bytes(std::uint32_t lanes) { return header_bytes + std::size_t{4} * lanes; }
inline constexpr bool is_lane_count(std::uint32_t lanes) {
    return lanes != 0 && lanes <= max_lanes && lanes % lane_unit == 0;
}

inline std::uint16_t read16(const std::uint8_t* p) { return static_cast<std::uint16_t>(p[0] << 8 | p[1]); }
inline std::uint32_t swapped(std::uint32_t value) {
    if constexpr (std::endian::native == std::endian::big) return value;
    return value << 24 | (value & 0xff00) << 8 | (value >> 8 & 0xff00) | value >> 24;
}
inline std::uint32_t read32(const std::uint8_t* p) {
    std::uint32_t value;
    std::memcpy(&value, p, sizeof value);
    return swapped(value);
}
inline void write16(std::uint8_t* p, std::uint32_t value) {
    p[0] = static_cast<std::uint8_t>(value >> 8);
    p[1] = static_cast<std::uint8_t>(value);
}
inline void write32(std::uint8_t* p, std::uint32_t value) {
    value = swapped(value);
    std::memcpy(p, &value, sizeof value);
}

// A block's key: message above, block below. Slots compare keys as numbers.
inline std::uint64_t key_at(const std::uint8_t* packet) {
    return std::uint64_t{read32(packet + at_message)} << 32 | read32(packet + at_block);
}

}  // namespace dlcp::aggregation
